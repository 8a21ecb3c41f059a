// Package plot draws the curves of the benchmarks' reports as SVG, for light and dark
// backgrounds, without a script or a font of its own. The same input gives the same bytes.
//
// It may import the standard library only.
package plot
