package link

const openFixed = 4

// Open asks for a namespace number for a manifest.
type Open struct {
	Manifest []byte // canonical, at most MaxManifest bytes
}

// Length is the bytes that Append adds.
func (x Open) Length() int { return openFixed + len(x.Manifest) }

// Append appends the payload.
func (x Open) Append(b []byte) []byte {
	b = le.AppendUint32(b, uint32(len(x.Manifest)))
	return append(b, x.Manifest...)
}

// Parse sets x from a payload, which Manifest aliases.
func (x *Open) Parse(b []byte) error {
	c := cursor{b: b}
	x.Manifest = c.bytes("manifest", c.count("manifest_len", MaxManifest))
	return c.end()
}
