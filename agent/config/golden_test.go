package config_test

import (
	"flag"
	"os"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares got with a file, or writes it under -rewrite.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -rewrite to make it", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run the test with -rewrite and look at the change.\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
