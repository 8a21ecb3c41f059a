//go:build kernelgen

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	c := build.NewContext()
	c.ConstraintExpr("amd64")
	g := &gen{Context: c, indices: map[[4]int]operand.Mem{}}
	g.constants()
	g.lanes16("lanes16", false)
	g.lanes16("lanes16Copy", true)
	g.lanes8(true)
	g.lanes8(false)
	g.reduce()
	g.chain(true)
	g.chain(false)

	file, err := c.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	// A fixed command line: the files are the same wherever they are written.
	cfg := printer.Config{Argv: []string{"go", "generate"}, Pkg: "blake3"}
	if err := write(filepath.Join(out, "kernels_amd64.s"), printer.NewGoAsm(cfg), file); err != nil {
		return err
	}
	return write(filepath.Join(out, "kernels_amd64.go"), printer.NewStubs(cfg), file)
}

func write(path string, p printer.Printer, file *ir.File) error {
	b, err := p.Print(file)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
