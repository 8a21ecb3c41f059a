package testbed

import (
	"os"
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
