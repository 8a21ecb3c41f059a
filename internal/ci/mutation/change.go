package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// change is one operator that is another when its switch is on.
type change struct {
	N     int
	Where string // file:line:column
	What  string // such as "< to <="
}

// edit puts text in place of n bytes of a file.
type edit struct {
	at, n int
	text  string
	depth int  // of the expression in its file
	end   bool // it closes what begins before it
}

// rewriter makes the edits of one file.
type rewriter struct {
	fset    *token.FileSet
	info    *types.Info
	name    string
	src     string
	next    int
	changes []change
	edits   []edit
	depth   int
}

func (r *rewriter) offset(p token.Pos) int { return r.fset.Position(p).Offset }

// number gives the next change a number.
func (r *rewriter) number(at token.Pos, what string) int {
	r.next++
	p := r.fset.Position(at)
	r.changes = append(r.changes, change{N: r.next, Where: fmt.Sprintf("%s:%d:%d", r.name, p.Line, p.Column), What: what})
	return r.next
}

func (r *rewriter) wrap(n ast.Node, before, after string) {
	r.edits = append(r.edits,
		edit{at: r.offset(n.Pos()), text: before, depth: r.depth},
		edit{at: r.offset(n.End()), text: after, depth: r.depth, end: true})
}

func (r *rewriter) replace(at token.Pos, n int, text string) {
	r.edits = append(r.edits, edit{at: r.offset(at), n: n, text: text, depth: r.depth})
}

// file rewrites a file, or gives it back as it was where nothing in it changes.
func (r *rewriter) file(f *ast.File, module string) string {
	ast.PreorderStack(f, nil, func(n ast.Node, stack []ast.Node) bool {
		r.depth = len(stack)
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.BinaryExpr:
			r.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.SUB && r.info.Types[n].Value == nil && r.numeric(n) != nil {
				r.wrap(n, fmt.Sprintf("mutationswitch.Neg(%d, ", r.number(n.OpPos, "-x to x")), ")")
				r.replace(n.OpPos, 1, "")
			}
		case *ast.IncDecStmt:
			r.step(n)
		}
		return true
	})
	if len(r.edits) == 0 {
		return r.src
	}
	r.edits = append(r.edits, edit{at: r.offset(f.Name.End()), text: fmt.Sprintf("\nimport mutationswitch %q\n", module+"/"+switchPath)})
	return apply(r.src, r.edits)
}

// apply makes all edits. At one place what closes comes first, the inner before the
// outer, and then what opens, the outer before the inner.
func apply(src string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.end && b.end:
			return b.depth - a.depth
		case a.end:
			return -1
		case b.end:
			return 1
		}
		return a.depth - b.depth
	})
	var b strings.Builder
	at := 0
	for _, e := range edits {
		b.WriteString(src[at:e.at])
		b.WriteString(e.text)
		at = e.at + e.n
	}
	b.WriteString(src[at:])
	return b.String()
}

// step is x++ and x--.
func (r *rewriter) step(n *ast.IncDecStmt) {
	if r.numericType(r.info.TypeOf(n.X)) == nil {
		return
	}
	if x, ok := ast.Unparen(n.X).(*ast.IndexExpr); ok {
		if _, isMap := r.info.TypeOf(x.X).Underlying().(*types.Map); isMap {
			return // has no address
		}
	}
	name, what := "Inc", "++ to --"
	if n.Tok == token.DEC {
		name, what = "Dec", "-- to ++"
	}
	r.wrap(n.X, fmt.Sprintf("mutationswitch.%s(%d, &", name, r.number(n.TokPos, what)), ")")
	r.replace(n.TokPos, 2, "")
}

var arithmetic = map[token.Token][2]string{
	token.ADD: {"Add", "+ to -"}, token.SUB: {"Sub", "- to +"}, token.MUL: {"Mul", "* to /"},
	token.QUO: {"Div", "/ to *"}, token.REM: {"Rem", "% to *"},
}

var edges = map[token.Token]string{
	token.LSS: "< to <=", token.LEQ: "<= to <", token.GTR: "> to >=", token.GEQ: ">= to >",
}

func (r *rewriter) binary(n *ast.BinaryExpr) {
	if r.info.Types[n].Value != nil {
		return // a constant
	}
	if a, ok := arithmetic[n.Op]; ok {
		if r.numeric(n) != nil && r.numeric(n.X) != nil && r.numeric(n.Y) != nil {
			r.wrap(n, fmt.Sprintf("mutationswitch.%s(%d, ", a[0], r.number(n.OpPos, a[1])), ")")
			r.replace(n.OpPos, len(n.Op.String()), ",")
		}
		return
	}
	switch n.Op {
	case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
	default:
		return
	}
	before, after := "((", ")"
	edge, ok := edges[n.Op]
	x, y := r.text(n.X), r.text(n.Y)
	switch {
	case !ok || strings.Contains(x+y, "\n") || strings.Contains(x+y, "//"):
	case n.Op == token.LSS || n.Op == token.GTR:
		after = fmt.Sprintf(" || mutationswitch.On(%d) && (%s) == (%s))", r.number(n.OpPos, edge), x, y)
	default:
		after = fmt.Sprintf(" && !(mutationswitch.On(%d) && (%s) == (%s)))", r.number(n.OpPos, edge), x, y)
	}
	r.wrap(n, before, fmt.Sprintf("%s != mutationswitch.On(%d))", after, r.number(n.OpPos, n.Op.String()+" to its negation")))
}

func (r *rewriter) text(n ast.Node) string { return r.src[r.offset(n.Pos()):r.offset(n.End())] }

// numeric is the type of an expression that is a number, not a constant of no type.
func (r *rewriter) numeric(e ast.Expr) types.Type {
	v := r.info.Types[e]
	if b, ok := v.Type.(*types.Basic); ok && b.Info()&types.IsUntyped != 0 {
		return nil
	}
	if x, ok := ast.Unparen(e).(*ast.BinaryExpr); ok && (x.Op == token.SHL || x.Op == token.SHR) && r.info.Types[x.X].Value != nil {
		return nil // 1 << n has the type that its place gives it
	}
	return r.numericType(v.Type)
}

func (r *rewriter) numericType(t types.Type) types.Type {
	if t == nil {
		return nil
	}
	if _, generic := t.(*types.TypeParam); generic {
		return nil
	}
	if b, ok := t.Underlying().(*types.Basic); ok && b.Info()&(types.IsInteger|types.IsFloat) != 0 {
		return t
	}
	return nil
}
