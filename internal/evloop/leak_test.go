package evloop

import (
	"testing"

	"meridian/internal/invariants/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
