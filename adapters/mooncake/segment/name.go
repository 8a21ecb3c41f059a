package segment

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"meridian/internal/stranger"
)

// DefaultPort is the handshake port of a name that has none.
const DefaultPort = 12001

// Name is the segment name of a peer without a metadata server: HOST:PORT of its
// handshake, an IPv6 address in brackets.
func Name(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// SplitName takes a segment name apart. The host is without brackets. A name without
// a port has DefaultPort.
func SplitName(name string) (host string, port uint16, err error) {
	bad := func(want string) (string, uint16, error) {
		return "", 0, &FieldError{Field: "name", Value: stranger.Quote(name), Want: want}
	}
	host, digits := name, ""
	switch {
	case strings.HasPrefix(name, "["):
		end := strings.IndexByte(name, ']')
		if end < 0 {
			return bad("a ] after the IPv6 address")
		}
		host, digits = name[1:end], name[end+1:]
		if digits != "" && digits[0] != ':' {
			return bad("a : between address and port")
		}
		digits = strings.TrimPrefix(digits, ":")
		if digits == "" && strings.HasSuffix(name, ":") {
			return bad("a port after the :")
		}
	case strings.Count(name, ":") == 1:
		host, digits, _ = strings.Cut(name, ":")
		if digits == "" {
			return bad("a port after the :")
		}
	}
	if host == "" || strings.ContainsAny(host, "[]/ \x00") {
		return bad("HOST:PORT")
	}
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		return bad("HOST:PORT, an IPv6 address in brackets")
	}
	if digits == "" {
		return host, DefaultPort, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return bad("a port from 1 to 65535")
	}
	return host, uint16(n), nil
}
