package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// Tier says how soon a block may go: lower tiers are evicted first.
type Tier uint8

// The three tiers, in the order in which they are evicted.
const (
	ThinkComplete  Tier = 0
	ThinkActive    Tier = 1
	OutputCritical Tier = 2
)

// Tiers is the number of tiers.
const Tiers = 3

var tierNames = [Tiers]string{"ThinkComplete", "ThinkActive", "OutputCritical"}

// String returns the tier's name, "tier 7" for a value that is none.
func (t Tier) String() string {
	if int(t) < len(tierNames) {
		return tierNames[t]
	}
	return "tier " + strconv.Itoa(int(t))
}

// ParseTier reads a tier's name or number. Case, hyphens and underscores do
// not matter: "think_complete" is ThinkComplete. The error matches
// CodeInvalid.
func ParseTier(s string) (Tier, error) {
	name := strings.NewReplacer("_", "", "-", "").Replace(s)
	for i, n := range tierNames {
		if strings.EqualFold(name, n) || s == strconv.Itoa(i) {
			return Tier(i), nil
		}
	}
	return 0, fmt.Errorf("tier %q is none of %s: %w", s, strings.Join(tierNames[:], ", "), CodeInvalid)
}

// Attest says who vouched for a checksum. It travels with the payload.
type Attest uint8

// The three values of Attest.
const (
	AttestNone     Attest = iota // nobody: the bytes are unverified
	AttestIngest                 // the first agent that committed foreign raw bytes
	AttestProducer               // the producing engine's own agent, at commit
)

// String returns "none", "ingest" or "producer", "attest 7" for a value that
// is none of them.
func (a Attest) String() string {
	switch a {
	case AttestNone:
		return "none"
	case AttestIngest:
		return "ingest"
	case AttestProducer:
		return "producer"
	}
	return "attest " + strconv.Itoa(int(a))
}
