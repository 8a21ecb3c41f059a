// Package layering holds no code, only the test that keeps each room to the
// imports that the design allows it. A wrong import fails the test with the
// rule that it breaks.
package layering
