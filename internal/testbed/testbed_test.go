package testbed

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestUntilAsksAgain(t *testing.T) {
	n := 0
	Until(t, "the third look", func() bool { n++; return n == 3 })
	if n != 3 {
		t.Errorf("%d looks", n)
	}
}

func TestAShortFolderGoesWithItsTest(t *testing.T) {
	var dir string
	t.Run("inner", func(t *testing.T) { dir = ShortDir(t) })
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

func TestAPanicIsItsText(t *testing.T) {
	if got := Panic(t, func() { panic("why") }); got != "why" {
		t.Errorf("%q", got)
	}
}

// A connection that was closed gives what was refused last; one that stays open is an
// error of the test.
func TestAConnectionsEndComesWithItsRefusal(t *testing.T) {
	refused := errors.New("refused")
	calls := 0
	got := Closed(t, strings.NewReader("rest"), func() error {
		if calls++; calls < 3 {
			return nil
		}
		return refused
	})
	if !errors.Is(got, refused) || calls != 3 {
		t.Error(got, calls)
	}
}

func TestContentIsThatOfItsSeed(t *testing.T) {
	if a := Content(100, 1); !bytes.Equal(a, Content(100, 1)) || bytes.Equal(a, Content(100, 2)) || len(a) != 100 {
		t.Errorf("% x", a)
	}
}
