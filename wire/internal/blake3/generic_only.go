//go:build !amd64

package blake3

type state = genericState

func detect() []Path { return []Path{Generic} }

func sum(b []byte) [Size]byte { return genericSum(b) }

func copySum(dst, src []byte) [Size]byte { return genericCopySum(dst, src) }
