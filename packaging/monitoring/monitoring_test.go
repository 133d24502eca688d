// Package monitoring_test reads the alert rules and the dashboard with
// Prometheus' own parser, which is too large to be a dependency of the relay.
package monitoring_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const dir = "../../docs/monitoring/"

func TestPrometheusAcceptsTheRules(t *testing.T) {
	groups, errs := rulefmt.ParseFile(dir+"relay.rules.yml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) == 0 {
		t.Fatal("no rules")
	}
}

// grafanaVariables stand in for what Grafana puts into a query.
var grafanaVariables = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")

func TestDashboardQueriesAreValid(t *testing.T) {
	text, err := os.ReadFile(dir + "grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	n := 0
	p := parser.NewParser(parser.Options{})
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			n++
			if _, err := p.ParseExpr(grafanaVariables.Replace(target.Expr)); err != nil {
				t.Errorf("%s: %v", panel.Title, err)
			}
		}
	}
	if n == 0 {
		t.Fatal("no queries")
	}
}
