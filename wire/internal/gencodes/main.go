package main

import (
	"fmt"
	"os"
)

// Paths are relative to the folder wire, where go generate runs the command.
const (
	sourcePath = "errors.json"
	goPath     = "codes.go"
	docPath    = "../docs/errors.md"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gencodes:", err)
		os.Exit(1)
	}
}

func run() error {
	source, err := os.ReadFile(sourcePath)
	if err != nil {
		return err
	}
	list, err := parse(source)
	if err != nil {
		return fmt.Errorf("%s: %w", sourcePath, err)
	}
	code, err := renderGo(list)
	if err != nil {
		return err
	}
	if err := os.WriteFile(goPath, code, 0o644); err != nil {
		return err
	}
	return os.WriteFile(docPath, renderDoc(list), 0o644)
}
