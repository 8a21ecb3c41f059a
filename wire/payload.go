package wire

// Decode reads a whole payload and verifies its body, which aliases p. It
// makes the checks of ParseHeader, then: body present (*TruncatedError),
// checksum (*ChecksumError), and in strict mode no bytes after the body
// (*TrailingError).
func Decode(p []byte, m Mode, limit uint32) (Header, []byte, error) {
	h, err := ParseHeader(p, m, limit)
	if err != nil {
		return Header{}, nil, err
	}
	body := p[HeaderLen:]
	if m == Lenient && uint64(len(body)) > uint64(h.BodyLen) {
		body = body[:h.BodyLen]
	}
	if err := h.Check(body); err != nil {
		return Header{}, nil, err
	}
	return h, body[:len(body):len(body)], nil
}

// Mint makes the header of body: *TierError for a tier that is none,
// *TooLargeError for a body above MaxBody.
func Mint(t Tier, body []byte) (Header, error) {
	if err := mintable(t, uint64(len(body)), MaxBody); err != nil {
		return Header{}, err
	}
	return Header{BodyLen: uint32(len(body)), Tier: t, Sum: SumOf(body)}, nil
}

// Seal turns p into a payload where it lies: the body is already in
// p[HeaderLen:], and its header is written into the HeaderLen bytes in front.
// The errors are those of Mint, and *TruncatedError where p has no room for a
// header; p is then unchanged.
func Seal(p []byte, t Tier) (Header, error) {
	if len(p) < HeaderLen {
		return Header{}, &TruncatedError{Have: uint64(len(p)), Need: HeaderLen}
	}
	h, err := Mint(t, p[HeaderLen:])
	if err != nil {
		return Header{}, err
	}
	h.Put(p)
	return h, nil
}

// AppendPayload appends header and body to b. The errors are those of Mint; b
// is then returned unchanged.
func AppendPayload(b []byte, t Tier, body []byte) ([]byte, error) {
	h, err := Mint(t, body)
	if err != nil {
		return b, err
	}
	return append(h.Append(b), body...), nil
}

// mintable says whether a header may be made for a body of n bytes.
func mintable(t Tier, n, limit uint64) error {
	if t > OutputCritical {
		return &TierError{Got: uint8(t)}
	}
	if n > limit {
		return &TooLargeError{Got: n, Limit: limit}
	}
	return nil
}
