// Package reach connects to where somebody else says, and looks first where that is:
// an entry or a descriptor of a stranger must not make this host connect to what is
// none of its business. It may import the standard library only.
package reach

import (
	"net"
	"net/netip"
	"syscall"
)

// Dialer connects to addresses that refuse has no error for, whatever a name resolves
// to. It is asked with the address itself: IPv4 as such, and without a zone.
func Dialer(refuse func(netip.Addr) error) *net.Dialer {
	return &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return refuse(at.Addr().Unmap().WithZone(""))
	}}
}
