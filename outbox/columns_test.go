package outbox

import (
	"testing"
	"time"
)

func TestContentIsComparedWhole(t *testing.T) {
	full := fullEvent(t)
	for name, change := range map[string]func(*Event){
		"tenant":        func(e *Event) { e.Tenant = "other" },
		"stream":        func(e *Event) { e.Stream = "other" },
		"id":            func(e *Event) { e.ID = "other" },
		"source":        func(e *Event) { e.Source = "/other" },
		"type":          func(e *Event) { e.Type = "other" },
		"subject":       func(e *Event) { e.Subject = "" },
		"time":          func(e *Event) { e.Time = e.Time.Add(time.Microsecond) },
		"no time":       func(e *Event) { e.Time = time.Time{} },
		"content type":  func(e *Event) { e.ContentType = "application/json" },
		"schema":        func(e *Event) { e.DataSchema = "urn:other" },
		"partition key": func(e *Event) { e.PartitionKey = "other" },
		"extensions":    func(e *Event) { e.Extensions = map[string]Value{"xextra": URI("opaque:")} },
		"no extensions": func(e *Event) { e.Extensions = nil },
		"data":          func(e *Event) { e.Data = JSON([]byte(`{"a":[true,1],"z":"raw café"}`)) },
		"data kind":     func(e *Event) { e.Data = Binary(e.Data.bytes) },
		"no data":       func(e *Event) { e.Data = Data{} },
		"empty data":    func(e *Event) { e.Data = Binary(nil) },
	} {
		c := storedColumns(&full)
		changed := fullEvent(t)
		if !changed.sameContent(c) {
			t.Fatal("the same event differs")
		}
		change(&changed)
		if changed.sameContent(c) {
			t.Errorf("a change of %s goes unnoticed", name)
		}
	}
	c := storedColumns(&full)
	c.time = "2026-01-01T00:00:00.12Z"
	c.data.v = string(full.Data.bytes)
	c.tenant = []byte(full.Tenant) // a driver that returns bytes for TEXT
	other := full
	other.Time = mustTime(t, "2026-01-01T01:00:00.12+01:00")
	if !other.sameContent(c) {
		t.Error("another spelling of the same content differs")
	}
	absent, empty := validEvent(), validEvent()
	absent.Data, empty.Data = Data{}, Binary(nil)
	if absent.sameContent(storedColumns(&empty)) || empty.sameContent(storedColumns(&absent)) {
		t.Error("absent and empty data are the same")
	}
	c = storedColumns(&empty)
	c.data.v = []byte(nil)
	if !empty.sameContent(c) {
		t.Error("empty data differs from what the driver returns for it")
	}
	c.data.v = nil
	if empty.sameContent(c) {
		t.Error("empty data is the same as a spoiled row without data")
	}
}
