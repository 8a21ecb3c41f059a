package link

import (
	"os"
	"os/exec"
	"testing"
)

// The reader beside the vectors was written from the protocol page, and shares no
// code with this package.
func TestTheReaderMadeFromTheProtocolPageAgreesWithTheVectors(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no python3: it is a part of what CI tests")
		}
		t.Skip("no python3 in PATH: check.py is not run")
	}
	cmd := exec.Command(python, "check.py")
	cmd.Dir = vectorDir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
