package topology

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Rejection is a device that was not chosen.
type Rejection struct {
	Device string `json:"device"`
	Why    string `json:"why"`
}

// Choice is what a fabric should use that has no device of its own.
type Choice struct {
	Devices   string // as UCX_NET_DEVICES has it; "": none can be used
	NUMA      int    // node of the first; -1: unknown
	Advertise netip.Addr
	File      string // the topology file that made the choice; "": it was made here
	Reasons   []string
	Rejected  []Rejection
}

// Err says why there is nothing to use.
func (c *Choice) Err() error {
	if c.Devices != "" {
		return nil
	}
	why := strings.Join(c.Reasons, "; ")
	for _, r := range c.Rejected {
		why += "; " + r.Device + ": " + r.Why
	}
	const most = 500
	if len(why) > most {
		why = why[:most] + " …"
	}
	return errors.New(why)
}

// A rule says which of two devices is better, and why the other one is not.
type rule struct {
	by  func(a, b *Device) int // negative: a
	why func(best, other *Device) string
}

// Choose chooses. f may be nil.
func Choose(h *Host, f *File) Choice {
	rules := rulesFor(h.GPUs)
	var able []*Device
	c := Choice{NUMA: -1}
	for i := range h.Devices {
		d := &h.Devices[i]
		if why := unable(d, h); why != "" {
			c.Rejected = append(c.Rejected, Rejection{d.Name, why})
		} else {
			able = append(able, d)
		}
	}
	slices.SortStableFunc(able, func(a, b *Device) int {
		for _, r := range rules {
			if n := r.by(a, b); n != 0 {
				return n
			}
		}
		return cmp.Compare(a.Name, b.Name)
	})
	if f != nil && f.Choice != nil {
		c.fromFile(h, f, able)
		return c
	}
	if len(able) == 0 {
		c.Reasons = append(c.Reasons, "no device of this host can be used to reach others")
		return c
	}
	best := able[0]
	c.Devices, c.NUMA = best.Name, best.NUMA
	c.Reasons = append(c.Reasons, praise(best, h))
	for _, d := range able[1:] {
		c.Rejected = append(c.Rejected, Rejection{d.Name, worse(rules, best, d)})
	}
	c.advertise(best, able)
	return c
}

// unable is why a device cannot be used at all; "": it can.
func unable(d *Device, h *Host) string {
	switch {
	case d.skip != "":
		return "the topology file: " + d.skip
	case d.Kind == Loopback:
		return "loopback reaches this host only"
	case d.Kind == NoLink:
		return "RDMA without a link layer that UCX uses"
	case d.Kind.RDMA() && d.Virtual:
		return "virtual: RDMA done by software"
	case d.Master != "":
		return "a part of " + d.Master
	case d.Kind == Bridge && d.Virtual:
		return "virtual: a bridge of this host only"
	case d.Virtual && d.Kind != Veth:
		return "virtual: no hardware behind it"
	case !d.Up:
		return "its port is " + cmp.Or(d.State, "in an unknown state")
	case d.Missing != "":
		return d.Missing + " is not here: a container must be given it"
	case !d.Kind.RDMA() && len(d.Addresses) == 0:
		return "it has no address that others can reach"
	}
	// The port of an interface is better than the interface.
	for i := range h.Devices {
		p := &h.Devices[i]
		if !d.Kind.RDMA() && p.Kind.RDMA() && slices.Contains(p.Interfaces, d.Name) && unable(p, h) == "" {
			return "its RDMA port " + p.Name + " is better"
		}
	}
	return ""
}

func rulesFor(gpus []GPU) []rule {
	near := func(d *Device) Distance { _, far := d.nearest(gpus); return far }
	return []rule{
		{func(a, b *Device) int { return compareBool(a.Virtual, b.Virtual) },
			func(best, _ *Device) string { return "virtual, and " + best.Name + " is hardware" }},
		{func(a, b *Device) int { return compareBool(!a.Kind.RDMA(), !b.Kind.RDMA()) },
			func(best, _ *Device) string { return "no RDMA, which " + best.Name + " has" }},
		{func(a, b *Device) int { return cmp.Compare(near(a), near(b)) },
			func(best, other *Device) string {
				return fmt.Sprintf("%s from the GPUs, and %s is %s", near(other), best.Name, near(best))
			}},
		{func(a, b *Device) int { return cmp.Compare(b.Bits, a.Bits) },
			func(best, other *Device) string {
				return fmt.Sprintf("%s, and %s has %s", Speed(other.Bits), best.Name, Speed(best.Bits))
			}},
		{func(a, b *Device) int { return cmp.Compare(a.Name, b.Name) },
			func(best, _ *Device) string { return "as good as " + best.Name + ", which is the first by name" }},
	}
}

// worse is why other is not chosen.
func worse(rules []rule, best, other *Device) string {
	for _, r := range rules {
		if r.by(best, other) < 0 {
			return r.why(best, other)
		}
	}
	return "as good as " + best.Name
}

// praise is what speaks for a device.
func praise(d *Device, h *Host) string {
	said := []string{string(d.Kind), "port " + cmp.Or(d.State, "unknown"), Speed(d.Bits)}
	if d.Virtual {
		said = append(said, "virtual, and no hardware can be used: what is behind it is not known here")
	}
	if which, far := d.nearest(h.GPUs); which >= 0 {
		said = append(said, fmt.Sprintf("%s as GPU %d", far, which))
		if far == Far || far == Unknown {
			said[len(said)-1] = fmt.Sprintf("%s from GPU %d", far, which)
		}
	}
	return d.Name + ": " + strings.Join(said, ", ")
}

// advertise takes the address that peers should dial.
func (c *Choice) advertise(d *Device, able []*Device) {
	if len(d.Addresses) > 0 {
		c.Advertise = d.Addresses[0]
		return
	}
	for _, o := range able {
		if len(o.Addresses) > 0 {
			c.Advertise = o.Addresses[0]
			c.Reasons = append(c.Reasons, fmt.Sprintf("%s has no address: that of %s is for peers to dial", d.Name, o.Name))
			return
		}
	}
	c.Reasons = append(c.Reasons, d.Name+" has no address, and no other device has one: there is none to advertise")
}

// fromFile takes the choice of a file. It is obeyed where the host has the devices.
func (c *Choice) fromFile(h *Host, f *File, able []*Device) {
	c.File = f.Path
	var chosen []*Device
	for name := range strings.SplitSeq(f.Choice.Devices, ",") {
		d := h.find(name)
		if d == nil {
			c.Reasons = append(c.Reasons, fmt.Sprintf("the topology file %s chooses %s, which this host does not have", f.Path, name))
			c.File = ""
			return
		}
		chosen = append(chosen, d)
	}
	c.Devices, c.NUMA = f.Choice.Devices, chosen[0].NUMA
	c.Reasons = append(c.Reasons, "the topology file "+f.Path+" overrides the choice")
	isChosen := func(name string) bool {
		return slices.ContainsFunc(chosen, func(d *Device) bool { return d.Name == name })
	}
	for _, r := range c.Rejected {
		if isChosen(r.Device) {
			c.Reasons = append(c.Reasons, r.Device+" would not be chosen without it: "+r.Why)
		}
	}
	c.Rejected = slices.DeleteFunc(c.Rejected, func(r Rejection) bool { return isChosen(r.Device) })
	for _, d := range able {
		if !isChosen(d.Name) {
			c.Rejected = append(c.Rejected, Rejection{d.Name, "the topology file has another one"})
		}
	}
	if f.Choice.NUMA != nil {
		c.NUMA = *f.Choice.NUMA
	}
	if f.Choice.Advertise != nil {
		c.Advertise, _ = netip.ParseAddr(*f.Choice.Advertise) // checked when it was read
		return
	}
	c.advertise(chosen[0], able)
}

// Speed is a rate for people.
func Speed(bits uint64) string {
	switch {
	case bits == 0:
		return "unknown speed"
	case bits < 1e9:
		return fmt.Sprintf("%d Mb/s", bits/1e6)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(bits)/1e9), ".0") + " Gb/s"
}
