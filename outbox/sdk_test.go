package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// The official CloudEvents SDK reads both of our forms.

func TestSDKReadsTheStructuredForm(t *testing.T) {
	for _, tc := range projectedEvents(t) {
		t.Run(tc.name, func(t *testing.T) {
			e := tc.event
			if e.Data.kind == DataJSON {
				// In structured mode this SDK takes data for JSON under no type but
				// application/json and text/json, whatever the specification says.
				e.ContentType = "application/json; charset=utf-8"
			}
			body, err := e.AppendStructured(nil)
			if err != nil {
				t.Fatal(err)
			}
			var got event.Event
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			compareWithSDK(t, &e, &got)
			want := e.Data.bytes
			if e.Data.kind == DataJSON {
				want = viaEncodingJSON(want)
			}
			if !bytes.Equal(got.Data(), want) {
				t.Errorf("data %q, want %q", got.Data(), want)
			}
		})
	}
}

func TestSDKReadsTheBinaryForm(t *testing.T) {
	for _, tc := range projectedEvents(t) {
		t.Run(tc.name, func(t *testing.T) {
			got, err := binding.ToEvent(t.Context(), binaryMessage{&tc.event})
			if err != nil {
				t.Fatal(err)
			}
			compareWithSDK(t, &tc.event, got)
			if !bytes.Equal(got.Data(), tc.event.Data.bytes) {
				t.Errorf("data %q, want %q", got.Data(), tc.event.Data.bytes)
			}
		})
	}
}

func compareWithSDK(t *testing.T, want *Event, got *event.Event) {
	t.Helper()
	if err := got.Validate(); err != nil {
		t.Errorf("the SDK finds it invalid: %v", err)
	}
	for _, a := range []struct{ name, got, want string }{
		{"specversion", got.SpecVersion(), "1.0"},
		{"id", got.ID(), want.ID},
		{"source", got.Source(), want.Source},
		{"type", got.Type(), want.Type},
		{"subject", got.Subject(), want.Subject},
		{"datacontenttype", got.DataContentType(), want.ContentType},
		{"dataschema", got.DataSchema(), want.DataSchema},
	} {
		if a.got != a.want {
			t.Errorf("%s: got %q, want %q", a.name, a.got, a.want)
		}
	}
	if !got.Time().Equal(want.Time) {
		t.Errorf("time: got %v, want %v", got.Time(), want.Time)
	}
	extensions := map[string]string{}
	for name, v := range want.Extensions {
		extensions[name] = v.Text()
	}
	if want.PartitionKey != "" {
		extensions["partitionkey"] = want.PartitionKey
	}
	if len(got.Extensions()) != len(extensions) {
		t.Errorf("extensions: got %v, want %v", got.Extensions(), extensions)
	}
	for name, text := range extensions {
		formatted, err := types.Format(got.Extensions()[name])
		if err != nil || formatted != text {
			t.Errorf("extension %s: got %q, %v, want %q", name, formatted, err, text)
		}
	}
}

// binaryMessage gives the SDK an event's attributes as a NATS message carries
// them: with the prefix ce-, percent-decoded as the NATS binding demands.
type binaryMessage struct{ e *Event }

func (m binaryMessage) ReadEncoding() binding.Encoding { return binding.EncodingBinary }

func (binaryMessage) GetAttribute(spec.Kind) (spec.Attribute, any) { return nil, nil }

func (binaryMessage) GetExtension(string) any { return nil }

func (m binaryMessage) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m binaryMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	headers := map[string]string{}
	for _, a := range m.e.AppendAttributes(nil) {
		value, err := url.PathUnescape(a.Value)
		if err != nil {
			return err
		}
		headers["ce-"+a.Name] = value
	}
	specs := spec.WithPrefix("ce-")
	version := specs.Version(headers[specs.PrefixedSpecVersionName()])
	if version == nil {
		return fmt.Errorf("no version in %v", headers)
	}
	for name, value := range headers {
		bare := strings.TrimPrefix(name, "ce-")
		set := func() error { return w.SetExtension(bare, value) }
		if a := version.Attribute(name); a != nil {
			set = func() error { return w.SetAttribute(a, value) }
		}
		if err := set(); err != nil {
			return err
		}
	}
	if body := m.e.Data.Bytes(); len(body) > 0 {
		return w.SetData(bytes.NewReader(body))
	}
	return nil
}
