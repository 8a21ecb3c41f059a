package fabrictest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/fabric/fabrictest"
	"meridian/wire"
)

var namespace = wire.Namespace{4, 5, 6}

func harness(b *broken) *fabrictest.Harness {
	return &fabrictest.Harness{
		Fabric: b,
		NS:     namespace,
		Damage: func(it fabric.Item) error {
			if !b.Flip(it.H, 0) {
				return errors.New("no such block")
			}
			return nil
		},
		Leaks: func() error {
			if s := b.Stats(); s.Blocks+s.Placed+s.Loose != 0 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		},
		Peer:    b.Name(),
		Windows: b.windows, At: b.Name(),
	}
}

// hold runs one check; a panic of the fabric is a failure of the check.
func hold(t *testing.T, c fabrictest.Check, b *broken) (err error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
		_ = b.Fabric.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := harness(b)
	if c.Applies != nil && !c.Applies(h) {
		return nil
	}
	return c.Run(ctx, h)
}

func TestSoundFabricPasses(t *testing.T) {
	for _, c := range fabrictest.Checks() {
		if err := hold(t, c, sound()); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func mutants() []mutant {
	return slices.Concat(blockMutants, refusalMutants, endMutants, optionalMutants, windowMutants, placeMutants)
}

// The suite is only worth something if a broken fabric fails it.
func TestEveryBugIsNoticed(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			noticed := 0
			for _, c := range fabrictest.Checks() {
				if !slices.Contains(m.check, c.Name) {
					continue
				}
				b := sound()
				m.apply(b)
				if err := hold(t, c, b); err == nil {
					t.Errorf("check %q passes", c.Name)
				} else {
					noticed++
					t.Logf("%s: %v", c.Name, err)
				}
			}
			if noticed != len(m.check) {
				t.Errorf("%d of the checks %q noticed it", noticed, m.check)
			}
		})
	}
}

// Every check fails for some bug: none is decoration. The two that only races can
// break are held against the race detector instead.
func TestEveryCheckHasABugThatItNotices(t *testing.T) {
	byRace := []string{"Close during calls"}
	named := make(map[string]bool)
	for _, m := range mutants() {
		for _, name := range m.check {
			named[name] = true
		}
	}
	seen := make(map[string]bool)
	for _, c := range fabrictest.Checks() {
		if seen[c.Name] {
			t.Errorf("two checks are named %q", c.Name)
		}
		seen[c.Name] = true
		if !named[c.Name] && !slices.Contains(byRace, c.Name) {
			t.Errorf("no mutant for %q", c.Name)
		}
	}
	for name := range named {
		if !seen[name] {
			t.Errorf("a mutant names %q, which is no check", name)
		}
	}
}
