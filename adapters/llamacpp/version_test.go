package llamacpp_test

import "testing"

// A server takes states of its own version only, so each is written back as it was
// read.
func TestStatesOfBothVersionsAreWrittenBackAsTheyWereRead(t *testing.T) {
	for file, version := range map[string]uint32{"f16-slot0": 2, "q8_0-slot0": 2, "v4-f16-slot0": 4, "v4-q8_0-slot0": 4} {
		state := goldenFile(t, file)
		st := open(t, state)
		if got := st.Geometry().Version; got != version {
			t.Errorf("%s: version %d, want %d", file, got, version)
		}
		same(t, recut(t, state, len(st.Tokens()), 2), state)
	}
}
