package topology

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// Bounds of a topology file.
const (
	maxFileBytes = 256 << 10
	maxNode      = 1023
	maxGbits     = 100_000
	maxReason    = 200 // bytes
)

// File is what a topology file says. What it does not say is as sysfs has it.
type File struct {
	Path   string      `toml:"-"`
	Device []FileEntry `toml:"device"`
	Choice *FileChoice `toml:"choice"`
}

// FileEntry is a table [[device]].
type FileEntry struct {
	Name    string  `toml:"name"`
	NUMA    *int    `toml:"numa"`
	Gbits   *uint64 `toml:"gbits"`
	Virtual *bool   `toml:"virtual"`
	Skip    *string `toml:"skip"` // why it is never chosen
}

// FileChoice is the table [choice].
type FileChoice struct {
	Devices   string  `toml:"devices"` // names with commas, as UCX has them
	NUMA      *int    `toml:"numa"`
	Advertise *string `toml:"advertise"`
}

// ReadFile reads and checks a topology file: its form, and nothing of the host.
func ReadFile(path string) (*File, error) {
	b, err := content(path)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path}
	m, err := toml.Decode(string(b), f)
	var bad toml.ParseError
	switch {
	case errors.As(err, &bad):
		return nil, fmt.Errorf("%s:%d: %s", path, bad.Position.Line, bad.Message)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if unknown := m.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("%s: unknown key %s: a [[device]] has name, numa, gbits, virtual and skip, [choice] has devices, numa and advertise", path, unknown[0])
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// content is that of a plain file: another kind may never answer.
func content(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	b, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(b) > maxFileBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	}
	return b, err
}

// deviceName is an interface's or a port's: UCX takes commas and colons for its own.
var deviceName = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}(:[0-9]{1,3})?$`)

func (f *File) check() error {
	seen := map[string]bool{}
	if len(f.Device) > maxDevices {
		return fmt.Errorf("%d tables [[device]], limit %d", len(f.Device), maxDevices)
	}
	for i, d := range f.Device {
		at := fmt.Sprintf("device[%d]", i)
		switch {
		case !deviceName.MatchString(d.Name):
			return fmt.Errorf("%s: name %q must be that of a device, as eth0 or mlx5_0:1", at, d.Name)
		case seen[d.Name]:
			return fmt.Errorf("%s: %s is there twice", at, d.Name)
		case d.Skip != nil && (strings.TrimSpace(*d.Skip) == "" || len(*d.Skip) > maxReason):
			return fmt.Errorf("%s: skip must be a reason of 1 to %d bytes", at, maxReason)
		case d.Gbits != nil && (*d.Gbits == 0 || *d.Gbits > maxGbits):
			return fmt.Errorf("%s: gbits = %d must be from 1 to %d", at, *d.Gbits, maxGbits)
		case d.NUMA == nil && d.Gbits == nil && d.Virtual == nil && d.Skip == nil:
			return fmt.Errorf("%s: it says nothing of %s: numa, gbits, virtual or skip", at, d.Name)
		}
		if err := node(at, d.NUMA); err != nil {
			return err
		}
		seen[d.Name] = true
	}
	if f.Choice == nil {
		return nil
	}
	if err := node("choice", f.Choice.NUMA); err != nil {
		return err
	}
	if f.Choice.Devices == "" {
		return errors.New("choice: devices is missing: the names of devices, as mlx5_0:1 or eth0")
	}
	for name := range strings.SplitSeq(f.Choice.Devices, ",") {
		if !deviceName.MatchString(name) {
			return fmt.Errorf("choice: devices = %q: %q must be the name of a device, as eth0 or mlx5_0:1", f.Choice.Devices, name)
		}
	}
	if f.Choice.Advertise == nil {
		return nil
	}
	switch a, err := netip.ParseAddr(*f.Choice.Advertise); {
	case err != nil:
		return fmt.Errorf("choice: advertise = %q must be an IP address", *f.Choice.Advertise)
	case a.IsUnspecified() || a.IsMulticast():
		return fmt.Errorf("choice: advertise = %q is an address that no peer can dial", *f.Choice.Advertise)
	}
	return nil
}

func node(at string, n *int) error {
	if n != nil && (*n < 0 || *n > maxNode) {
		return fmt.Errorf("%s: numa = %d must be from 0 to %d", at, *n, maxNode)
	}
	return nil
}

// Apply changes what is known of a host to what a file says, and notes each change.
func (f *File) Apply(h *Host) {
	for _, e := range f.Device {
		d := h.find(e.Name)
		if d == nil {
			h.Notes = append(h.Notes, fmt.Sprintf("the topology file names %s, which this host does not have", e.Name))
			continue
		}
		var said []string
		if e.NUMA != nil {
			d.NUMA, d.path = *e.NUMA, nil // what the bus says of distances is not to be believed either
			said = append(said, fmt.Sprintf("NUMA node %d", *e.NUMA))
		}
		if e.Gbits != nil {
			d.Bits = *e.Gbits * 1e9
			said = append(said, Speed(d.Bits))
		}
		if e.Virtual != nil {
			d.Virtual = *e.Virtual
			said = append(said, map[bool]string{true: "virtual", false: "not virtual"}[d.Virtual])
		}
		if e.Skip != nil {
			d.skip = *e.Skip
			said = append(said, "never chosen")
		}
		h.Notes = append(h.Notes, fmt.Sprintf("the topology file overrides %s: %s", d.Name, strings.Join(said, ", ")))
	}
}
