package config

import (
	"strings"
	"testing"
)

func TestWeakKeysAreRefused(t *testing.T) {
	for _, weak := range []string{
		"short", "0123456789abcdef", "an example key, change it", "correct horse battery",
		strings.Repeat("a", 64), strings.Repeat("0123456789abcdef", 2), strings.Repeat("deadbeef", 8), strings.Repeat("9f3a61c04d", 4),
		"fedcba9876543210fedcba9876543211", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
		"31415926535897932384626433832795", "my-Secret-for-all-of-the-peers-of-this-cluster-2024",
		"the key of the peers in the second rack of hall",
	} {
		if _, _, err := loadText(t, "[link]\npsk = \""+weak+"\"\n"); err == nil || !strings.Contains(err.Error(), "128 random bits") || !strings.Contains(err.Error(), "mrdn cert psk") {
			t.Errorf("%q: %v", weak, err)
		} else if strings.Contains(err.Error(), weak) {
			t.Errorf("the error prints the key: %v", err)
		}
	}
}
