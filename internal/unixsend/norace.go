//go:build !race

package unixsend

func happened() {}
