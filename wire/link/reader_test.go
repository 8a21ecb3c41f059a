package link

import (
	"os/exec"
	"testing"

	"meridian/internal/realpart"
)

// The reader beside the vectors was written from the protocol page, and shares no
// code with this package.
func TestTheReaderMadeFromTheProtocolPageAgreesWithTheVectors(t *testing.T) {
	python := realpart.Python(t)
	cmd := exec.Command(python, "check.py")
	cmd.Dir = vectorDir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
