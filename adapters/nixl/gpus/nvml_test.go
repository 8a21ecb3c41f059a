//go:build cgo

package gpus

import (
	"os"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

func TestTheGPUsOfAServerAreListed(t *testing.T) {
	server := dgxa100.New() // go-nvml's own model of one
	driver, list, err := listBy(server)
	if err != nil || driver == "" || len(list) != 8 {
		t.Fatal(driver, list, err)
	}
	seen := map[string]bool{}
	for _, g := range list {
		if !strings.Contains(g.Name, "A100") || !strings.HasPrefix(g.UUID, "GPU-") || g.Bytes < 39<<30 || !strings.HasSuffix(g.PCI, ".0") || seen[g.UUID] {
			t.Errorf("%+v", g)
		}
		seen[g.UUID] = true
	}
}

// refusing is a server one call of which fails.
type refusing struct {
	*dgxa100.Server
	init, driver, count, handle nvml.Return
}

func (r *refusing) Init() nvml.Return { return r.init }
func (r *refusing) SystemGetDriverVersion() (string, nvml.Return) {
	return "1", r.driver
}
func (r *refusing) DeviceGetCount() (int, nvml.Return) { return 1, r.count }
func (r *refusing) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if r.handle != nvml.SUCCESS {
		return nil, r.handle
	}
	return r.Server.DeviceGetHandleByIndex(i)
}

func TestWhatTheDriverRefusesIsTold(t *testing.T) {
	for want, r := range map[string]*refusing{
		"libnvidia-ml.so.1 cannot be opened": {init: nvml.ERROR_LIBRARY_NOT_FOUND},
		"nvmlInit: ":                         {init: nvml.ERROR_DRIVER_NOT_LOADED},
		"nvmlSystemGetDriverVersion: ":       {driver: nvml.ERROR_UNKNOWN},
		"nvmlDeviceGetCount: ":               {count: nvml.ERROR_UNKNOWN},
		"GPU 0: nvmlDeviceGetHandleByIndex":  {handle: nvml.ERROR_GPU_IS_LOST},
	} {
		r.Server = dgxa100.New()
		if _, list, err := listBy(r); err == nil || !strings.Contains(err.Error(), want) || list != nil {
			t.Errorf("%v, %v; want %q", list, err, want)
		}
	}
}

// A host without a driver: every machine that builds this.
func TestAHostWithoutADriverSaysSo(t *testing.T) {
	if _, err := os.Stat("/sys/module/nvidia"); err == nil {
		t.Skip("this host has NVIDIA's driver")
	}
	if _, _, err := List(); err == nil || !strings.Contains(err.Error(), "libnvidia-ml.so.1") {
		t.Error(err)
	}
}
