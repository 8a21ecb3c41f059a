//go:build !cgo

package gpus

import (
	"errors"

	"meridian/adapters/nixl/control"
)

// List says that this build cannot ask.
func List() (driver string, list []control.GPU, err error) {
	return "", nil, errors.New("not built in: meridian-ffi was built without CGO, which go-nvml needs")
}
