package link

import (
	"testing"

	"meridian/wire"
)

// A peer that may not see a block must not learn that it exists: in every
// message with item statuses DENIED leaves as the very bytes of ABSENT.
func TestDeniedLeavesAsAbsent(t *testing.T) {
	for _, c := range []struct{ denied, absent Message }{
		{Table{Items: []Have{{Status: wire.CodeDenied}}}, Table{Items: []Have{{Status: wire.CodeAbsent}}}},
		{Push{Items: []PushItem{{Have: Have{Status: wire.CodeDenied}}}}, Push{Items: []PushItem{{Have: Have{Status: wire.CodeAbsent}}}}},
		{Grant{Status: []wire.Code{wire.CodeDenied}}, Grant{Status: []wire.Code{wire.CodeAbsent}}},
		{End{Code: wire.CodeDenied}, End{Code: wire.CodeAbsent}},
		{GoAway{Code: wire.CodeDenied}, GoAway{Code: wire.CodeAbsent}},
		{Error{Code: wire.CodeDenied}, Error{Code: wire.CodeAbsent}},
		{Acquired{Items: []Place{{Status: wire.CodeDenied}}}, Acquired{Items: []Place{{Status: wire.CodeAbsent}}}},
	} {
		if d, a := string(c.denied.Append(nil)), string(c.absent.Append(nil)); d != a {
			t.Errorf("%T: %x, want %x", c.denied, d, a)
		}
	}
}

func TestDeniedIsReadAsAbsent(t *testing.T) {
	table := with(Table{Items: []Have{{}}}.Append(nil), tableFixed, byte(wire.CodeDenied))
	if x, err := Parse[Table](table); err != nil || x.Items[0].Status != wire.CodeAbsent {
		t.Errorf("table: %v, %v", x.Items, err)
	}
	acquired := with(Acquired{Items: []Place{{}}}.Append(nil), acquiredFixed, byte(wire.CodeDenied))
	if x, err := Parse[Acquired](acquired); err != nil || x.Items[0].Status != wire.CodeAbsent {
		t.Errorf("acquired: %v, %v", x.Items, err)
	}
	grant := with(Grant{Status: make([]wire.Code, 1)}.Append(nil), grantFixed, byte(wire.CodeDenied))
	if x, err := Parse[Grant](grant); err != nil || x.Status[0] != wire.CodeAbsent {
		t.Errorf("grant: %v, %v", x.Status, err)
	}
}

func TestOutwardLeavesOtherCodesAlone(t *testing.T) {
	for v := range 1 << 16 {
		if c := wire.Code(v); c != wire.CodeDenied && (Outward(c) != c || outwardOpen(c) != c) {
			t.Fatalf("%d becomes %d and %d", c, Outward(c), outwardOpen(c))
		}
	}
}
