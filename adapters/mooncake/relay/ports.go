package relay

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"meridian/internal/door"
	"meridian/wire"
)

// Ports are those of the data plane: of each life of the target another one.
type Ports struct {
	Host        string
	First, Last uint16 // 0: any that is free
}

// ParsePorts reads HOST:PORT or HOST:FIRST-LAST.
func ParsePorts(s string) (Ports, error) {
	host, ports, err := net.SplitHostPort(s)
	first, last, several := strings.Cut(ports, "-")
	if !several {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if err != nil || errA != nil || errB != nil || b < a || several && a == 0 {
		return Ports{}, fmt.Errorf("%q must be HOST:PORT or HOST:FIRST-LAST, with ports from 0 to 65535: %w", s, wire.CodeConfig)
	}
	return Ports{host, uint16(a), uint16(b)}, nil
}

func (p Ports) len() int { return int(p.Last) - int(p.First) + 1 }

func (p Ports) at(port uint16) string { return net.JoinHostPort(p.Host, strconv.Itoa(int(port))) }

// try says whether the first port could be opened.
func (p Ports) try(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", p.at(p.First))
	if err == nil {
		err = l.Close()
	}
	return err
}

// open opens a port that no life had. It begins with the one that the target's address
// gives: so a relay that was restarted has the port that sources know, if the target is
// the same, and rather another one if it is not.
func (t *target) open(ctx context.Context, d *door.Door, p Ports, addr string) (netip.AddrPort, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(addr))
	begin := int(h.Sum32() % uint32(p.len()))
	last := fmt.Errorf("mooncake relay: each of the %d data ports was that of an earlier life of the target, whose addresses sources may still have: %w", p.len(), wire.CodeTooMany)
	for i := range p.len() {
		n := p.First + uint16((begin+i)%p.len())
		if n > 0 && t.used[n] {
			continue
		}
		got, err := d.Listen(ctx, p.at(n))
		if err != nil {
			last = err
			continue
		}
		if t.used[got.Port()] { // any that is free, and an earlier life had it
			break
		}
		t.used[got.Port()] = true
		return got, nil
	}
	return netip.AddrPort{}, last
}
