package link

// Parse makes a message from a payload.
func Parse[T any, P interface {
	*T
	Parse([]byte) error
}](b []byte) (x T, err error) {
	err = P(&x).Parse(b)
	return x, err
}
