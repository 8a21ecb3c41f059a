package link

import (
	"fmt"
	"testing"

	"meridian/wire"
)

// Where a code is shown next to its reason, the reason does not say it again.
func TestAReasonDoesNotRepeatItsCode(t *testing.T) {
	err := fmt.Errorf("its certificate: expired: %w", wire.CodeAuth)
	if got := reasonOf(err); got != "its certificate: expired" {
		t.Errorf("%q", got)
	}
	if got := reasonOf(fmt.Errorf("AUTH is what %w says", wire.CodeAuth)); got != "AUTH is what AUTH says" {
		t.Errorf("%q", got)
	}
}
