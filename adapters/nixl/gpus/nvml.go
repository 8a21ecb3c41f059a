//go:build cgo

package gpus

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"meridian/adapters/nixl/control"
)

// List is the driver's version and its GPUs, in the driver's order.
func List() (driver string, list []control.GPU, err error) { return listBy(nvml.New()) }

// library is what of NVML is used. go-nvml's mock of a server has it too.
type library interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	SystemGetDriverVersion() (string, nvml.Return)
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return)
}

func listBy(lib library) (driver string, list []control.GPU, err error) {
	switch r := lib.Init(); r {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND: // the library has no text for its own absence
		return "", nil, fmt.Errorf("libnvidia-ml.so.1 cannot be opened: the driver's user libraries are not installed here")
	default:
		return "", nil, fmt.Errorf("nvmlInit: %v", nvml.ErrorString(r))
	}
	defer func() { _ = lib.Shutdown() }()
	driver, r := lib.SystemGetDriverVersion()
	if r != nvml.SUCCESS {
		return "", nil, fmt.Errorf("nvmlSystemGetDriverVersion: %v", nvml.ErrorString(r))
	}
	n, r := lib.DeviceGetCount()
	if r != nvml.SUCCESS {
		return "", nil, fmt.Errorf("nvmlDeviceGetCount: %v", nvml.ErrorString(r))
	}
	for i := range min(n, control.MaxList) {
		g, err := one(lib, i)
		if err != nil {
			return "", nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		list = append(list, g)
	}
	return driver, list, nil
}

func one(lib library, i int) (g control.GPU, err error) {
	d, r := lib.DeviceGetHandleByIndex(i)
	if r != nvml.SUCCESS {
		return g, fmt.Errorf("nvmlDeviceGetHandleByIndex: %v", nvml.ErrorString(r))
	}
	pci, r := d.GetPciInfo()
	if r != nvml.SUCCESS {
		return g, fmt.Errorf("nvmlDeviceGetPciInfo: %v", nvml.ErrorString(r))
	}
	// The kernel's form of an address, which is in sysfs.
	g.PCI = fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	if g.Name, r = d.GetName(); r != nvml.SUCCESS {
		return g, fmt.Errorf("nvmlDeviceGetName: %v", nvml.ErrorString(r))
	}
	if g.UUID, r = d.GetUUID(); r != nvml.SUCCESS {
		return g, fmt.Errorf("nvmlDeviceGetUUID: %v", nvml.ErrorString(r))
	}
	if m, r := d.GetMemoryInfo(); r == nvml.SUCCESS { // some have none of their own
		g.Bytes = m.Total
	}
	return g, nil
}
