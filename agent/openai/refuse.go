package openai

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// A refusal is a parameter that changes the answer in the API or in an engine's
// extension of it, and that is not built here: it is refused by name. off are
// the values, in JSON, with which it asks for nothing; null is always one.
type refusal struct {
	name string
	off  string // a JSON array
}

// refusals are of requests as a whole.
var refusals = parseRefusals([]refusal{
	// Of the API.
	{"n", `[1]`},
	{"tools", `[[]]`},
	{"tool_choice", `["none"]`},
	{"parallel_tool_calls", `[false]`},
	{"functions", `[[]]`},
	{"function_call", `["none"]`},
	{"response_format", `[{"type":"text"}]`},
	{"modalities", `[["text"]]`},
	{"audio", `[]`},
	{"prediction", `[]`},
	{"web_search_options", `[]`},
	{"moderation", `[]`},
	{"logit_bias", `[{}]`},
	{"store", `[false]`},
	{"verbosity", `["medium"]`},
	{"best_of", `[1]`},
	{"echo", `[false]`},
	{"suffix", `[""]`},
	// Of vLLM. A salt that is dropped would share a cache that was to be apart.
	{"cache_salt", `[]`},
	{"kv_transfer_params", `[]`},
	{"structured_outputs", `[]`},
	{"guided_json", `[]`},
	{"guided_regex", `[]`},
	{"guided_choice", `[]`},
	{"guided_grammar", `[]`},
	{"repetition_penalty", `[1]`},
	{"length_penalty", `[1]`},
	{"use_beam_search", `[false]`},
	{"min_tokens", `[0]`},
	{"ignore_eos", `[false]`},
	{"stop_token_ids", `[[]]`},
	{"include_stop_str_in_output", `[false]`},
	{"skip_special_tokens", `[true]`},
	{"prompt_logprobs", `[]`},
	{"truncate_prompt_tokens", `[]`},
	{"allowed_token_ids", `[]`},
	{"bad_words", `[[]]`},
	{"add_generation_prompt", `[true]`},
	{"continue_final_message", `[false]`},
	{"chat_template", `[]`},
	{"documents", `[[]]`},
	{"return_token_ids", `[false]`},
	{"return_tokens_as_token_ids", `[false]`},
	{"vllm_xargs", `[{}]`},
	{"include_reasoning", `[true]`},
	{"add_special_tokens", `[true]`},
	{"chat_template_content_format", `["auto","string"]`},
	{"mm_processor_kwargs", `[{}]`},
	{"media_io_kwargs", `[{}]`},
	{"priority", `[0]`},
	{"response_token_ids", `[false]`},
	{"spaces_between_special_tokens", `[true]`},
	{"logits_processors", `[[]]`},
	{"logits_processor_pattern", `[]`},
	{"guided_decoding_backend", `[]`},
	{"guided_whitespace_pattern", `[]`},
	{"structural_tag", `[]`},
	// Of SGLang.
	{"separate_reasoning", `[true]`},
	{"stream_reasoning", `[true]`},
	{"regex", `[]`},
	{"ebnf", `[]`},
	{"no_stop_trim", `[false]`},
	{"lora_path", `[]`},
	{"session_params", `[]`},
	{"min_new_tokens", `[0]`},
	{"custom_logit_processor", `[]`},
	{"custom_params", `[]`},
	// Of llama.cpp.
	{"grammar", `[""]`},
	{"json_schema", `[]`},
	{"repeat_penalty", `[1]`},
	{"typical_p", `[1]`},
	{"mirostat", `[0]`},
	{"dynatemp_range", `[0]`},
	{"xtc_probability", `[0]`},
	{"dry_multiplier", `[0]`},
	{"samplers", `[]`},
	{"n_probs", `[0]`},
	{"n_predict", `[]`},
	{"id_slot", `[-1]`},
	{"cache_prompt", `[true]`},
	{"reasoning_format", `["auto"]`},
	{"thinking_forced_open", `[false]`},
	{"reasoning_in_content", `[false]`},
	{"lora", `[[]]`},
	{"top_n_sigma", `[-1]`},
	{"tfs_z", `[1]`},
	{"top_a", `[0]`},
	{"dynatemp_exponent", `[1]`},
	{"mirostat_tau", `[5]`},
	{"mirostat_eta", `[0.1]`},
	{"xtc_threshold", `[0.1]`},
	{"adaptive_target", `[-1]`},
	{"min_keep", `[0]`},
	{"n_keep", `[0]`},
	{"n_discard", `[0]`},
	{"n_indent", `[0]`},
	{"n_cmpl", `[1]`},
	{"t_max_predict_ms", `[0]`},
	{"return_progress", `[false]`},
	{"return_tokens", `[false]`},
	{"timings_per_token", `[false]`},
	{"post_sampling_probs", `[false]`},
	{"response_fields", `[[]]`},
	{"image_data", `[[]]`},
	{"input_prefix", `[]`},
	{"input_extra", `[[]]`},
	{"backend_sampling", `[false]`},
	// Of Ollama.
	{"format", `[""]`},
	{"options", `[{}]`},
	{"raw", `[false]`},
	{"think", `[]`},
})

// The parts of a request that are objects have unsupported members of their own.
var (
	messageRefusals = parseRefusals([]refusal{
		{"prefix", `[false]`}, {"partial", `[false]`}, {"thinking", `[]`}, {"name", `[""]`}, {"tool_calls", `[[]]`}, {"function_call", `[]`}, {"tool_call_id", `[]`}, {"audio", `[]`}, {"refusal", `[""]`},
	})
	streamRefusals    = parseRefusals([]refusal{{"include_obfuscation", `[false]`}, {"continuous_usage_stats", `[false]`}})
	reasoningRefusals = parseRefusals([]refusal{{"exclude", `[false]`}, {"summary", `[]`}, {"generate_summary", `[]`}})
)

type parsedRefusal struct {
	name string
	off  []any
}

func parseRefusals(list []refusal) []parsedRefusal {
	out := make([]parsedRefusal, len(list))
	for i, r := range list {
		out[i].name = r.name
		if err := json.Unmarshal([]byte(r.off), &out[i].off); err != nil {
			panic(r.name + ": " + err.Error())
		}
	}
	return out
}

// refuse fails with the first parameter of the table that asks for something.
func (f *fields) refuse(table []parsedRefusal) {
	for _, r := range table {
		raw, ok := f.get(r.name)
		if !ok || r.allows(raw) {
			continue
		}
		text := "it is not supported"
		if len(r.off) > 0 {
			text += "; the only value is " + r.values()
		}
		f.fail(r.name, "unsupported_parameter", "%s", text)
		return
	}
}

func (r *parsedRefusal) allows(raw json.RawMessage) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	for _, off := range r.off {
		if reflect.DeepEqual(v, off) {
			return true
		}
	}
	return false
}

func (r *parsedRefusal) values() string {
	var all []string
	for _, v := range r.off {
		var b bytes.Buffer
		if json.NewEncoder(&b).Encode(v) == nil {
			all = append(all, strings.TrimSpace(b.String()))
		}
	}
	return strings.Join(all, " or ")
}
