//go:build race

package blake3

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTheRaceDetectorSees runs this test again, as processes that race.
func TestTheRaceDetectorSees(t *testing.T) {
	const child = "BLAKE3_TEST_RACE"
	b, dst := make([]byte, 20000), make([]byte, 20000)
	var h Hasher
	races := map[string]func(){
		"Sum256":              func() { Sum256(b) },
		"Hasher.Write":        func() { _, _ = h.Write(b) },
		"CopySum256's source": func() { CopySum256(dst, b) },
		"CopySum256's copy":   func() { CopySum256(b, dst) },
	}
	if f := races[os.Getenv(child)]; f != nil {
		done := make(chan bool)
		go func() { b[len(b)-1] = 1; close(done) }()
		f()
		<-done
		return
	}
	for name := range races {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTheRaceDetectorSees$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", child, name))
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "DATA RACE") {
			t.Errorf("%s: no race was reported\n%s", name, out)
		}
	}
}
