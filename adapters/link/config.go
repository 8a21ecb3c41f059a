package link

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/internal/loglimit"
	"meridian/internal/safefile"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Config is read once by New; Apply changes a part of it. Zero values take the
// defaults named here.
type Config struct {
	Agent       [16]byte // this agent; never zero
	Incarnation uint64   // new at each start; never zero
	Name        string   // by which peers list this agent: HELLO carries it

	Store      Store
	Namespaces Namespaces

	Peers    []PeerConfig // nobody else may connect; empty: peers on this host only
	Tenants  []string     // of peers on this host where Peers is empty; empty: none
	PSK      []byte       // of peers whose entry has none; anybody who has it can claim to be any of them
	TLS      *TLS         // nil: no tls:// address
	UIDs     []uint32     // besides the daemon's own, for Unix sockets
	Insecure bool         // take listed peers without proof, and listen beyond loopback without TLS

	Lanes      int          // data lanes a dialled session, 1..16; default min(4, cores)
	Limits     proto.Limits // granted to a peer; default: those of the protocol
	Standing   int64        // bytes reserved ahead for a session's small pushes; default 4 MiB; below 0: none
	Congestion string       // TCP_CONGESTION; empty: the system's

	// Quota counts sessions by peer, and half-open connections by source and in
	// all. Default: one of this node's own with the limits of the protocol.
	Quota *quota.Book

	Clock    func() time.Duration // monotonic; default: since New
	Wall     func() time.Time     // for certificates; default: time.Now
	Log      *slog.Logger         // default: discard
	Observer Observer             // may be nil
	Gateway  fabric.Gateway       // nil: none
}

// PeerConfig is one entry of the allow list.
type PeerConfig struct {
	Name    string
	Addr    string   // tcp://host:port, tls://host:port, unix:///path; empty: it dials us
	Agent   [16]byte // pin; zero: any. No other peer may give a pinned agent
	Tenants []string // that it may have; empty: none, and it may not connect
	PSK     []byte
}

// TLS is this agent's certificate and the authority of its peers. Certificates
// of peers carry their name as first DNS name and their tenants as URIs
// meridian://tenant/NAME.
type TLS struct {
	Certificate tls.Certificate
	CA          *x509.CertPool
	Sums        [3][sha256.Size]byte // of the files that LoadTLS read: certificate, key, authority
}

// TLSError says which file of LoadTLS is wrong, and how. It matches wire.CodeConfig.
type TLSError struct {
	File int // 0 is the certificate, 1 the key, 2 the authority
	Err  error
}

func (e *TLSError) Error() string {
	return "link " + [...]string{"certificate", "key", "authority"}[e.File] + " " + e.Err.Error()
}

// Unwrap returns the cause and CONFIG.
func (e *TLSError) Unwrap() []error { return []error{e.Err, wire.CodeConfig} }

// Tenants are those that this agent's certificate proves.
func (t *TLS) Tenants() []string { return tenantsOf(t.Certificate.Leaf) }

// maxPEM bounds a file of certificates: a bundle of authorities has some 200 KiB.
const maxPEM = 1 << 20

// LoadTLS reads PEM files. Files that prove nothing to any peer are refused: a key of
// another certificate, a certificate of this agent that is not valid now, no authority
// that is, or this agent's own certificate as the only one. The error is a *TLSError, but where the files change all the time.
func LoadTLS(cert, key, ca string) (*TLS, error) {
	t := &TLS{CA: x509.NewCertPool()}
	files, err := readTogether([3]string{cert, key, ca}, func(path string) ([]byte, error) { return safefile.Read(path, maxPEM) })
	if err != nil {
		return nil, err
	}
	for i, b := range files {
		t.Sums[i] = sha256.Sum256(b)
	}
	own, err := certificates(files[0])
	if err == nil {
		err = validNow(own[:1])
	}
	if err != nil {
		return nil, &TLSError{0, fmt.Errorf("%s: %w", cert, err)}
	}
	if t.Certificate, err = tls.X509KeyPair(files[0], files[1]); err != nil {
		return nil, &TLSError{1, fmt.Errorf("%s is not the private key of the certificate in %s: %w", key, cert, err)}
	}
	authorities, err := certificates(files[2])
	if err == nil {
		err = validNow(authorities)
	}
	if err == nil && !slices.ContainsFunc(authorities, func(c *x509.Certificate) bool { return signs(c) || !c.Equal(t.Certificate.Leaf) }) {
		err = errors.New("only the certificate of this agent is in it, which is that of no authority, so no peer could be verified: " +
			"name the certificate of the authority that signed it")
	}
	if err != nil {
		return nil, &TLSError{2, fmt.Errorf("%s: %w", ca, err)}
	}
	for _, c := range authorities {
		t.CA.AddCert(c)
	}
	return t, nil
}

// Doubts are why peers may not take the certificate as that of this agent. What it
// proves of tenants is not looked at.
func (t *TLS) Doubts(agent string) (all []string) {
	own, chain := t.Certificate.Leaf, x509.NewCertPool()
	for _, der := range t.Certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain.AddCert(c)
		}
	}
	if name := certName(own); name != agent {
		all = append(all, fmt.Sprintf("is the certificate of %q, by which peers know this agent, and agent.name is %q", name, agent))
	}
	if _, err := own.Verify(x509.VerifyOptions{Roots: t.CA, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		all = append(all, fmt.Sprintf("is not signed by the authority in link.tls.ca, so a peer that has the same one refuses it: %v", err))
	}
	return all
}

// certificates are those of a PEM file, which may hold other things too.
func certificates(b []byte) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		switch block, b = pem.Decode(b); {
		case block == nil && len(all) == 0:
			return nil, errors.New("no certificate in it, in PEM")
		case block == nil:
			return all, nil
		case block.Type != "CERTIFICATE":
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d in it cannot be read: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
}

// signs reports whether others can be verified by a certificate. What is listed as
// authority is verified itself in any case.
func signs(c *x509.Certificate) bool { return c.Version < 3 || c.BasicConstraintsValid && c.IsCA }

// validNow refuses certificates of which none is.
func validNow(all []*x509.Certificate) error {
	now := time.Now()
	for _, c := range all {
		if !now.Before(c.NotBefore) && !now.After(c.NotAfter) {
			return nil
		}
	}
	return fmt.Errorf("valid from %s to %s only", all[0].NotBefore.UTC().Format(time.DateTime), all[0].NotAfter.UTC().Format(time.DateTime))
}

// maxReadings bounds how often the files are read until they stay the same.
const maxReadings = 5

// readTogether reads files that are replaced together, until two readings in a row
// are the same: a new authority with the old certificate would be taken without an
// error.
func readTogether(paths [3]string, read func(string) ([]byte, error)) ([3][]byte, error) {
	var last [3][]byte
	for n := range maxReadings {
		var now [3][]byte
		same := n > 0
		for i, path := range paths {
			b, err := read(path)
			if err != nil {
				return now, &TLSError{i, err}
			}
			now[i] = b
			same = same && bytes.Equal(b, last[i])
		}
		if same {
			return now, nil
		}
		last = now
	}
	return last, fmt.Errorf("link certificate: %q differ in each of %d readings: write them, then reload: %w", paths, maxReadings, wire.CodeConfig)
}

// Observer hears what a metrics registry wants to count. Calls come from the
// data path's goroutines and must not block.
type Observer interface {
	PeerState(peer string, state State, code wire.Code)
	Transfer(t Transfer)
	Refusal(peer string, code wire.Code)
	// ChecksumFailure is a body that the peer pushed and that arrived wrong.
	ChecksumFailure(peer string)
}

// Transfer is one finished PULL or PUSH of either side.
type Transfer struct {
	Peer   string
	In     bool // body bytes came to this agent
	Served bool // the peer asked for it
	Class  proto.Class
	Via    string // tcp, tls, unix
	Items  int    // that succeeded
	Bytes  uint64 // body bytes of those
	Took   time.Duration
	Code   wire.Code

	Refused []wire.Code // Served: a code for each block that the peer did not get, or may not give
}

// nobody hears nothing.
type nobody struct{}

func (nobody) PeerState(string, State, wire.Code) {}
func (nobody) Transfer(Transfer)                  {}
func (nobody) Refusal(string, wire.Code)          {}
func (nobody) ChecksumFailure(string)             {}

// withDefaults fills what is zero, and refuses what contradicts itself.
func (c Config) withDefaults() (Config, error) {
	if c.Agent == ([16]byte{}) || c.Incarnation == 0 {
		return c, fmt.Errorf("link: agent and incarnation must not be zero: %w", wire.CodeConfig)
	}
	if c.Gateway == nil {
		c.Gateway = fabric.NoGateway{}
	}
	if c.Store == nil || c.Namespaces == nil {
		return c, fmt.Errorf("link: no store or no namespaces: %w", wire.CodeConfig)
	}
	if c.Lanes == 0 {
		c.Lanes = min(defaultLanes, runtime.NumCPU())
	}
	if c.Lanes < 1 || c.Lanes > proto.MaxLanes {
		return c, fmt.Errorf("link: lanes: want 1..%d, got %d: %w", proto.MaxLanes, c.Lanes, wire.CodeConfig)
	}
	d := core.DefaultLimits
	c.Limits = proto.Limits{
		Reqs: cmp.Or(c.Limits.Reqs, d.Reqs), Items: cmp.Or(c.Limits.Items, d.Items), Frame: cmp.Or(c.Limits.Frame, d.Frame),
		BytesInFlight: cmp.Or(c.Limits.BytesInFlight, d.BytesInFlight), LingerMS: cmp.Or(c.Limits.LingerMS, d.LingerMS),
	}
	if c.Quota == nil {
		c.Quota = &quota.Book{}
		c.Quota.SetLimit(quota.Sessions, quota.Peer, proto.MaxSessions)
		c.Quota.SetLimit(quota.Sessions, quota.Source, maxUnlisted)
		c.Quota.SetLimit(quota.HalfOpen, quota.Source, proto.HalfOpenPerSource)
		c.Quota.SetLimit(quota.HalfOpen, quota.All, proto.HalfOpen)
	}
	if c.Clock == nil {
		start := time.Now()
		c.Clock = func() time.Duration { return time.Since(start) }
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = loglimit.Logger(c.Log, loglimit.DefaultBurst)
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	return c, checkPeers(c.Peers, c.TLS)
}

// checkPeers refuses a list that contradicts itself.
func checkPeers(peers []PeerConfig, certs *TLS) error {
	seen, pins := map[string]bool{}, map[[16]byte]string{}
	for _, p := range peers {
		if p.Name == "" || seen[p.Name] {
			return fmt.Errorf("link: peer %q: a name that is empty or used twice: %w", p.Name, wire.CodeConfig)
		}
		seen[p.Name] = true
		if o, twice := pins[p.Agent]; twice && p.Agent != ([16]byte{}) {
			return fmt.Errorf("link: peers %s and %s are pinned to the same agent id: %w", o, p.Name, wire.CodeConfig)
		}
		pins[p.Agent] = p.Name
		if p.Addr == "" {
			continue
		}
		a, err := parseAddr(p.Addr)
		if err != nil {
			return err
		}
		if a.network == viaTLS && certs == nil {
			return fmt.Errorf("link: peer %s: %s without a certificate: %w", p.Name, p.Addr, wire.CodeConfig)
		}
	}
	return nil
}
