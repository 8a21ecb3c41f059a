package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// overlay writes what the go tool reads instead of the changed file into dir, and
// returns the argument that tells it so. No file of the tree is touched.
func (c *change) overlay(top, dir string) (arg string, err error) {
	file := filepath.Join(top, c.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), c.old); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once", c.file, c.old, n)
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return "-overlay=" + list, os.WriteFile(list, replace, 0o600)
}
