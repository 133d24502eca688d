package docs_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/outbox-relay/relay/relay"
)

// recorder is a registry that keeps the collectors' descriptions: a collector
// without samples yet can not be gathered.
type recorder struct{ descs []string }

func (r *recorder) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() { c.Describe(ch); close(ch) }()
	for d := range ch {
		r.descs = append(r.descs, d.String())
	}
	return nil
}

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = r.Register(c) // it does not fail
	}
}

func (r *recorder) Unregister(prometheus.Collector) bool { return false }

var descForm = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// metrics are the relay's metrics with their labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	var r recorder
	relay.NewMetrics(&r)
	all := map[string][]string{}
	for _, d := range r.descs {
		m := descForm.FindStringSubmatch(d)
		if m == nil {
			t.Fatalf("description in an unknown form: %s", d)
		}
		all[m[1]] = strings.FieldsFunc(m[2], func(c rune) bool { return c == ',' })
	}
	if len(all) < 14 {
		t.Fatalf("only %d metrics", len(all))
	}
	return all
}

// alert is a rule as Prometheus reads it.
type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	d := yaml.NewDecoder(strings.NewReader(read(t, "monitoring/relay.rules.yml")))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

// panels are the queries of the dashboard by panel title.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "monitoring/grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	if len(all) == 0 {
		t.Fatal("no panels")
	}
	return all
}

var (
	metricName  = regexp.MustCompile(`\brelay_[a-z_]+`)
	selector    = regexp.MustCompile(`\b(relay_[a-z_]+)\{([^}]*)\}`)
	matcherName = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping    = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
)

// base is the metric behind a histogram's series.
func base(name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if b, ok := strings.CutSuffix(name, suffix); ok && strings.HasSuffix(b, "_seconds") {
			return b
		}
	}
	return name
}

// fromScrape are the labels that no metric of ours declares.
var fromScrape = []string{"instance", "job", "le"}

// checkExpr reports metrics and labels of expr that do not exist.
func checkExpr(t *testing.T, where, expr string, known map[string][]string) {
	t.Helper()
	inExpr := slices.Clone(fromScrape)
	for _, name := range metricName.FindAllString(expr, -1) {
		labels, ok := known[base(name)]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, name)
		}
		inExpr = append(inExpr, labels...)
	}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		for _, l := range matcherName.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(known[base(m[1])], l[1]) && !slices.Contains(fromScrape, l[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(m[1], ",") {
			if !slices.Contains(inExpr, strings.TrimSpace(l)) {
				t.Errorf("%s: no metric in %q has the label %s", where, expr, l)
			}
		}
	}
}

func TestAlertsUseMetricsThatExist(t *testing.T) {
	known := metrics(t)
	for _, a := range alerts(t) {
		checkExpr(t, a.Alert, a.Expr, known)
		for _, need := range []string{a.Labels["severity"], a.Annotations["summary"], a.Annotations["description"]} {
			if need == "" {
				t.Errorf("%s: severity, summary and description are needed", a.Alert)
			}
		}
	}
}

func TestDashboardUsesMetricsThatExist(t *testing.T) {
	known := metrics(t)
	var used strings.Builder
	for title, exprs := range panels(t) {
		for _, expr := range exprs {
			checkExpr(t, title, expr, known)
			used.WriteString(expr + "\n")
		}
	}
	for name := range known {
		if !strings.Contains(used.String(), name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}

var metricRow = regexp.MustCompile("(?m)^\\| `(relay_[a-z_]+)` \\| ([^|]*)\\|")

func TestOperatorsPageListsEveryMetric(t *testing.T) {
	listed := map[string]string{}
	for _, m := range metricRow.FindAllStringSubmatch(read(t, "operate.md"), -1) {
		listed[m[1]] = strings.NewReplacer("`", "", " ", "").Replace(m[2])
	}
	known := metrics(t)
	for name, labels := range known {
		if got, ok := listed[name]; !ok || got != strings.Join(labels, ",") {
			t.Errorf("operate.md lists %s with labels %q, want %q", name, got, labels)
		}
	}
	for name := range listed {
		if _, ok := known[name]; !ok {
			t.Errorf("operate.md lists %s, which does not exist", name)
		}
	}
}

func TestEveryAlertHasARunbookEntry(t *testing.T) {
	runbook := read(t, "runbook.md")
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if !strings.Contains(runbook, "\n### "+a.Alert+"\n") {
			t.Errorf("runbook.md has no entry for %s", a.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Relay\w+)$`).FindAllStringSubmatch(runbook, -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("runbook.md has an entry for %s, which is no alert", m[1])
		}
	}
}
