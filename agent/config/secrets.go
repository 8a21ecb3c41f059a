package config

import (
	"fmt"
	"os"
	"strings"
)

// checkMode refuses a file with secrets that everybody can write: who does so is a peer
// from the next reload on. One that everybody can only read is a finding of doctor.
func (l *loader) checkMode() {
	keys := l.cfg.SecretsInFile()
	if len(keys) == 0 {
		return
	}
	info, err := os.Stat(l.file)
	if err == nil && info.Mode().IsRegular() && info.Mode()&0o002 != 0 {
		l.problems = append(l.problems, Problem{File: l.file, Text: fmt.Sprintf("its mode is %04o, so everybody can write it, and it holds %s: chmod 600", info.Mode().Perm(), strings.Join(keys, ", "))})
	}
}

// SecretsInFile are the keys whose secrets the file holds.
func (c *Config) SecretsInFile() []string {
	var keys []string
	for _, k := range c.origins {
		if k.secret != nil && k.secret() != "" && k.Source == "file" {
			keys = append(keys, k.Key)
		}
	}
	return keys
}
