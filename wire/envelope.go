package wire

import (
	"encoding/binary"
	"fmt"
)

// EnvelopeLen is the size of what the legacy envelope puts before a payload.
const EnvelopeLen = 8

var envelopeMagic = [4]byte{'M', 'N', 'C', 'K'}

// EnvelopeError says why bytes are not a legacy envelope. Err is a
// *TruncatedError (shorter than EnvelopeLen, or a short body), a *MagicError
// or a *TooLargeError. It matches CodeEnvelope, and what Err matches.
type EnvelopeError struct{ Err error }

func (e *EnvelopeError) Error() string { return fmt.Sprintf("mnck envelope: %v", e.Err) }

// Unwrap returns CodeEnvelope and Err.
func (e *EnvelopeError) Unwrap() []error { return []error{CodeEnvelope, e.Err} }

// ParseEnvelope takes the envelope of Meridian 0.2's `mooncake-synth` off one
// payload: ASCII MNCK, u32 little-endian length, payload. It is not a format
// of Mooncake. The payload aliases p, as does rest, the bytes that follow the
// envelope; Decode verifies the payload. The error is an *EnvelopeError: the
// checks are at least 8 bytes, magic, body present.
func ParseEnvelope(p []byte) (payload, rest []byte, err error) {
	if len(p) < EnvelopeLen {
		return nil, nil, &EnvelopeError{&TruncatedError{Have: uint64(len(p)), Need: EnvelopeLen}}
	}
	if got := [4]byte(p); got != envelopeMagic {
		return nil, nil, &EnvelopeError{&MagicError{Want: envelopeMagic, Got: got}}
	}
	need := EnvelopeLen + uint64(binary.LittleEndian.Uint32(p[4:]))
	if uint64(len(p)) < need {
		return nil, nil, &EnvelopeError{&TruncatedError{Have: uint64(len(p)), Need: need}}
	}
	return p[EnvelopeLen:need:need], p[need:], nil
}

// AppendEnvelope appends payload in a legacy envelope to b. A payload of 4 GiB
// or more does not fit: the error is an *EnvelopeError and b is returned
// unchanged.
func AppendEnvelope(b, payload []byte) ([]byte, error) {
	if n := uint64(len(payload)); n > MaxBody {
		return b, &EnvelopeError{&TooLargeError{Got: n, Limit: MaxBody}}
	}
	b = append(b, envelopeMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...), nil
}
