package measure

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWhereARunWasAndHowLongItTook(t *testing.T) {
	r := Begin()
	for processor() == r.processorUse { // work that is measured
	}
	e := r.End("v1")
	if e.WallS <= 0 || e.ProcessorS <= 0 || e.CPUs < 1 || e.Began.IsZero() || e.Version != "v1" {
		t.Errorf("%+v", e)
	}
	if b, err := json.Marshal(e); err != nil || !strings.Contains(string(b), `"processor_s":`) {
		t.Errorf("%s, %v", b, err)
	}
}
