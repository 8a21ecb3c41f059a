// Command gencodes writes wire/codes.go and docs/errors.md from
// wire/errors.json, the one source of Meridian's error codes.
//
//	go generate ./wire
//
// It runs in the folder wire. A number or a name, once released, stays: other
// languages, dashboards and run books hold it. A new code takes a free number
// of its scope's hundred, and a line in testdata/released.txt.
//
// It may import the standard library only, and must never import wire: it has
// to run while codes.go is broken.
package main
