package config

import (
	"errors"
	"fmt"
	"slices"

	"meridian/wire"
)

var namespaceTable = table[wire.Manifest]{"namespace", "`[[namespace]]`: a namespace that the daemon has open by itself, so that peers of NIXL and Mooncake, which open none, bring and take its blocks without an engine here. The keys are those of the manifest (docs/spec/mrdn-v1.md), and an engine whose manifest differs in one of them has another namespace; `mrdn namespace list` shows the number that is made of them. Not settable from the environment.", []field[wire.Manifest]{
	key("tenant", func(m *wire.Manifest) *string { return &m.Tenant }, words, "", free[string](), "Whose blocks these are: one of security.tenants. Required."),
	key("model", func(m *wire.Manifest) *string { return &m.Model }, words, "", free[string](), "Required."),
	key("revision", func(m *wire.Manifest) *string { return &m.Revision }, words, "", free[string](), "Of the model."),
	key("role", func(m *wire.Manifest) *string { return &m.Role }, words, "", free[string](), "What the blocks are to the engine."),
	key("dtype", func(m *wire.Manifest) *string { return &m.Dtype }, words, "", free[string](), "Type of the elements."),
	key("layout", func(m *wire.Manifest) *string { return &m.Layout }, words, "", free[string](), "How a block is laid out."),
	key("block_bytes", func(m *wire.Manifest) *uint32 { return &m.BlockBytes }, sizes32, 0, free[uint32](), "Body of a full block. Required."),
	key("block_tokens", func(m *wire.Manifest) *uint32 { return &m.BlockTokens }, counts, 0, free[uint32](), "Tokens of a full block. Required."),
	key("kv_heads", func(m *wire.Manifest) *uint32 { return &m.KVHeads }, counts, 0, free[uint32](), "Heads of keys and values."),
	key("head_size", func(m *wire.Manifest) *uint32 { return &m.HeadSize }, counts, 0, free[uint32](), "Elements of a head."),
	key("layer_first", func(m *wire.Manifest) *uint32 { return &m.LayerFirst }, counts, 0, free[uint32](), "The first layer that the blocks have."),
	key("layer_last", func(m *wire.Manifest) *uint32 { return &m.LayerLast }, counts, 0, free[uint32](), "The last one, included."),
	key("tp_rank", func(m *wire.Manifest) *uint32 { return &m.TPRank }, counts, 0, free[uint32](), "Rank in tensor parallel."),
	key("tp_size", func(m *wire.Manifest) *uint32 { return &m.TPSize }, counts, 0, free[uint32](), "Ranks of tensor parallel."),
	key("pp_rank", func(m *wire.Manifest) *uint32 { return &m.PPRank }, counts, 0, free[uint32](), "Rank in pipeline parallel."),
	key("pp_size", func(m *wire.Manifest) *uint32 { return &m.PPSize }, counts, 0, free[uint32](), "Ranks of pipeline parallel."),
	key("dcp_rank", func(m *wire.Manifest) *uint32 { return &m.DCPRank }, counts, 0, free[uint32](), "Rank in decode context parallel."),
	key("dcp_size", func(m *wire.Manifest) *uint32 { return &m.DCPSize }, counts, 0, free[uint32](), "Ranks of decode context parallel."),
	key("hash_scheme", func(m *wire.Manifest) *string { return &m.HashScheme }, words, "", free[string](), "How the engine makes its block hashes."),
	key("kv_group", func(m *wire.Manifest) *uint32 { return &m.KVGroup }, counts, 0, free[uint32](), "Index of the KV cache group of a hybrid model; 0: the first, or the only one."),
	key("kv_group_kind", func(m *wire.Manifest) *string { return &m.KVGroupKind }, words, "", free[string](), "What the layers of the group keep, such as full or sliding."),
	key("kv_window", func(m *wire.Manifest) *uint32 { return &m.KVWindow }, counts, 0, free[uint32](), "Tokens that a sliding window sees. 0: no window."),
	key("scale_bytes", func(m *wire.Manifest) *uint32 { return &m.ScaleBytes }, sizes32, 0, free[uint32](), "Of the scales, within block_bytes."),
	key("scale_dtype", func(m *wire.Manifest) *string { return &m.ScaleDtype }, words, "", free[string](), "Type of the scales."),
}}

// namespaceForm is [[namespace]]. An entry is known by the number of its namespace, so that
// a key that changes is one namespace less and another one more.
func namespaceForm() form {
	f := array(namespaceTable.reloads(), "namespaces", "", func(c *Config) *[]wire.Manifest { return &c.Namespaces })
	f.take = func(dst, src *Config) { dst.Namespaces = src.Namespaces }
	f.names = func(c *Config) []string {
		out := make([]string, len(c.Namespaces))
		for i, m := range c.Namespaces {
			out[i] = m.Namespace().String()
		}
		return out
	}
	return f
}

// checkNamespaces tests each manifest, and what they say together.
func (l *loader) checkNamespaces() {
	list := l.cfg.Namespaces
	if most := l.cfg.Quota.EngineNamespaces; len(list) > most {
		l.fail("namespace", "%d namespaces, quota.engine_namespaces is %d, which is the share of all [[namespace]] together too", len(list), most)
	}
	for i, m := range list {
		l.checkNamespace(fmt.Sprintf("namespace[%d]", i), m)
		for k, o := range list[:i] {
			field, ours, theirs := o.Diff(m)
			switch {
			case field == "":
				l.fail(fmt.Sprintf("namespace[%d]", i), "the same as namespace[%d]", k)
			case o.SameFamily(m) && o.SamePart(m):
				l.fail(fmt.Sprintf("namespace[%d].%s", i, field), "%q, and namespace[%d] of the same tenant, model, role, ranks, layers and cache group has %q: one of the two is wrong", theirs, k, ours)
			}
		}
	}
}

func (l *loader) checkNamespace(key string, m wire.Manifest) {
	var bad *wire.ManifestError
	if err := m.Check(); errors.As(err, &bad) {
		l.fail(key+"."+bad.Key, "%s", bad.Text)
	}
	for _, of := range []struct {
		name    string
		missing bool
	}{{"tenant", m.Tenant == ""}, {"model", m.Model == ""}, {"block_bytes", m.BlockBytes == 0}, {"block_tokens", m.BlockTokens == 0}} {
		if of.missing {
			l.fail(key+"."+of.name, "missing")
		}
	}
	if own := l.cfg.Security.Tenants; m.Tenant != "" && !slices.Contains(own, m.Tenant) {
		l.fail(key+".tenant", "%q is not in security.tenants, which is %q%s", m.Tenant, own, didYouMean(Nearest(m.Tenant, own)))
	}
	if most := min(l.cfg.Arena.Extent, l.cfg.KVMemory.Capacity); uint64(m.BlockBytes) > most-min(most, 64) { // 64: the header's room in front of a body
		l.fail(key+".block_bytes", "%s does not fit into one extent: arena.extent_bytes is %s", FormatBytes(uint64(m.BlockBytes)), FormatBytes(most))
	}
	if m.LayerFirst > m.LayerLast {
		l.fail(key+".layer_first", "%d is above layer_last, which is %d", m.LayerFirst, m.LayerLast)
	}
	for _, of := range []struct {
		name       string
		rank, size uint32
	}{{"tp_rank", m.TPRank, m.TPSize}, {"pp_rank", m.PPRank, m.PPSize}, {"dcp_rank", m.DCPRank, m.DCPSize}} {
		if of.rank >= max(of.size, 1) {
			l.fail(key+"."+of.name, "%d of %d ranks: the first one is 0", of.rank, of.size)
		}
	}
}
