package wire

import (
	"slices"
	"strconv"
	"strings"
)

//go:generate go run ./internal/gencodes

// Code is a stable error number of errors.json. It is an error, so that
// errors.Is(err, CodeChecksum) works on every typed error of this module.
type Code uint16

// CodeInfo is what errors.json says about a code.
type CodeInfo struct {
	Code  Code
	Name  string // as on the command line and in metrics: NS_UNKNOWN
	Scope string // how far it reaches: item, request, connection, payload, config
	Text  string // what it means
	Fix   string // what to do about it
}

// String returns the code's name, or "code 999" for a number that this
// version does not know: a newer peer may send one.
func (c Code) String() string {
	if i, ok := c.find(); ok {
		return codeTable[i].Name
	}
	return "code " + strconv.Itoa(int(c))
}

// Error returns the name too: verbs like %v and slog take an error's Error, and
// a code must look the same in a label, a log and a message.
func (c Code) Error() string { return c.String() }

// Err returns nil for CodeOK and c for any other: what a received status is
// as an error.
func (c Code) Err() error {
	if c == CodeOK {
		return nil
	}
	return c
}

func (c Code) find() (int, bool) {
	return slices.BinarySearchFunc(codeTable[:], c, func(e CodeInfo, c Code) int { return int(e.Code) - int(c) })
}

// Codes returns all codes by rising number.
func Codes() []CodeInfo { return slices.Clone(codeTable[:]) }

// LookupCode finds a code by number or name. Case, hyphens, underscores and
// blanks do not matter, nor does a prefix "MRDN" or "code": 104, "CHECKSUM",
// "MRDN-104", "too-large", "code 105" and "CodeTooLarge" are all found.
func LookupCode(nameOrNumber string) (CodeInfo, bool) {
	s := flatten(nameOrNumber)
	s = strings.TrimPrefix(s, "MRDN")
	s = strings.TrimPrefix(s, "CODE")
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		if i, ok := Code(n).find(); ok {
			return codeTable[i], true
		}
		return CodeInfo{}, false
	}
	for _, e := range codeTable {
		if flatten(e.Name) == s {
			return e, true
		}
	}
	return CodeInfo{}, false
}

// flatten takes out what a look-up ignores.
func flatten(s string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToUpper(s))
}
