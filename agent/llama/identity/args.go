package identity

import (
	"fmt"
	"slices"
	"strings"
)

// own are the arguments that a node sets itself or whose default it depends on, by
// why they may not be given.
var own = map[string]string{}

// harmless are the arguments that change no KV of a token: where and how fast it is
// computed, what a client is told, how a prompt is written before it is tokens, and
// how tokens are drawn. Those of the cache's types and of flash attention are here
// too, since the layout of the states tells them.
var harmless = map[string]bool{}

func init() {
	for why, names := range map[string]string{
		"is the node's own to set": "-m --model --host --port -c --ctx-size -np --parallel --slot-save-path --api-key --api-key-file " +
			"--api-prefix --ssl-key-file --ssl-cert-file -cram --cache-ram --no-kv-unified -no-kvu --no-context-shift",
		"would make states that cannot be cut into blocks":   "-kvu --kv-unified --context-shift --cache-reuse --embedding --embeddings --rerank --reranking",
		"would serve another model than llama.model":         "-mu --model-url -dr --docker-repo -hf -hfr --hf-repo -hff --hf-file --models-dir --models-preset --models-max --models-autoload",
		"would load the model again without the node's word": "--sleep-idle-seconds",
	} {
		for _, name := range strings.Fields(names) {
			own[name] = why
		}
	}
	const none = "-t --threads -tb --threads-batch --threads-http -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll " +
		"-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch --numa " +
		"-ngl --gpu-layers --n-gpu-layers -dev --device -sm --split-mode -ts --tensor-split -mg --main-gpu " +
		"-fit --fit -fitt --fit-target -cmoe --cpu-moe -ncmoe --n-cpu-moe -kvo --kv-offload -nkvo --no-kv-offload " +
		"--mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io -lm --load-mode --check-tensors --warmup --no-warmup " +
		"-ctk --cache-type-k -ctv --cache-type-v -fa --flash-attn " +
		"--jinja --no-jinja --chat-template --chat-template-file --chat-template-kwargs --reasoning-format -rea --reasoning " +
		"--reasoning-effort --reasoning-budget --reasoning-budget-message -n --predict --n-predict " +
		"-s --seed --temp --temperature --top-k --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty " +
		"-a --alias --tags --metrics --slots --no-slots --props --ui --webui --no-ui --no-webui --perf --no-perf -cb --cont-batching " +
		"-v --verbose --log-verbose -lv --verbosity --log-verbosity --log-disable --log-file --log-colors --log-prefix " +
		"--no-log-prefix --log-timestamps --no-log-timestamps -to --timeout --offline -sps --slot-prompt-similarity"
	for _, name := range strings.Fields(none) {
		harmless[name] = true
	}
}

// group is an argument with the values that follow it.
type group struct {
	name   string
	values []string
}

// isFlag says whether an argument is a flag; -1 and -0.5 are values.
func isFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && (arg[1] < '0' || arg[1] > '9') && arg[1] != '.'
}

// groups reads arguments as llama-server does: it takes _ for - in long names. What
// stands in front of the first flag is a group without a name.
func groups(args []string) []group {
	var out []group
	for _, arg := range args {
		if isFlag(arg) {
			name, value, cut := strings.Cut(arg, "=")
			if strings.HasPrefix(name, "--") {
				name = strings.ReplaceAll(name, "_", "-")
			}
			g := group{name: name}
			if cut {
				g.values = append(g.values, value)
			}
			out = append(out, g)
			continue
		}
		if len(out) == 0 {
			out = append(out, group{})
		}
		out[len(out)-1].values = append(out[len(out)-1].values, arg)
	}
	return out
}

// CheckArgs refuses arguments that a node sets itself, or that make states that
// cannot be shared.
func CheckArgs(args []string) error {
	for _, g := range groups(args) {
		if why, ok := own[g.name]; ok {
			return fmt.Errorf("%s %s", g.name, why)
		}
	}
	return nil
}

// keyed are the groups of arguments that may change KV.
func keyed(args []string) []group {
	return slices.DeleteFunc(groups(args), func(g group) bool { return harmless[g.name] })
}

// parts are what a value may name: lists have commas, and a file may have a scale
// behind it.
func parts(value string) []string { return strings.Split(value, ",") }

// scaled splits FILE:SCALE. Without a colon all is the file.
func scaled(part string) (file, scale string) {
	if i := strings.LastIndexByte(part, ':'); i > 0 {
		return part[:i], part[i:]
	}
	return part, ""
}
