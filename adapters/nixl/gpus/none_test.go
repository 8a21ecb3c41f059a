//go:build !cgo

package gpus

import (
	"strings"
	"testing"
)

func TestABuildWithoutCGOSaysSo(t *testing.T) {
	if _, list, err := List(); list != nil || err == nil || !strings.Contains(err.Error(), "not built in") {
		t.Error(list, err)
	}
}
