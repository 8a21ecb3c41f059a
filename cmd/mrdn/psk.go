package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/spf13/cobra"
)

// pskLen is the length of a new pre-shared key in bytes: as long as the proofs
// that are made with it.
const pskLen = 32

func newCertPSKCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "psk",
		Short: "Make a pre-shared key",
		Long: `Prints a new random key of 256 bits for link.psk, or for the psk of one
[[link.peer]] on both sides. A key that somebody made up can be guessed from a
recorded connection, so the daemon refuses keys that look like one.`,
		Example:     "  mrdn cert psk\n  export MERIDIAN_LINK_PSK=$(mrdn cert psk)",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(context.Context, []string) (result, error) {
		var key [pskLen]byte
		_, _ = rand.Read(key[:])
		return pskResult{hex.EncodeToString(key[:])}, nil
	})
	return c
}

type pskResult struct {
	PSK string `json:"psk"`
}

func (r pskResult) grid(bool) grid { return grid{rows: [][]string{{r.PSK}}} }
