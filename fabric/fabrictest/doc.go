// Package fabrictest is the one suite that every fabric passes.
//
// A fabric's own test builds a Harness around a fresh fabric and calls Run:
//
//	func TestContract(t *testing.T) {
//		fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
//			f := synthetic.New(synthetic.Options{})
//			return fabrictest.Harness{Fabric: f}
//		})
//	}
//
// The contract is the documentation of package fabric; each Check holds one
// part of it against the fabric. Checks of an optional interface run when the
// fabric has it, checks that need a hook of the Harness when the hook is set.
// A check is a function that returns an error, so the suite is tested itself:
// its own tests break a fabric in one way after the other and demand that a
// check notices.
//
// It imports the standard library, fabric, wire and blocks/window. It must not know any
// particular fabric, and must not sleep or judge by time.
package fabrictest
