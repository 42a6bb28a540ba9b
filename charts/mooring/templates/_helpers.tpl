{{/* Names, labels and what follows from several values. Nothing here makes an object. */}}

{{- define "mooring.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* What names begin with: short enough for the endings of all objects. */}}
{{- define "mooring.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "mooring.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "mooring.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "component" "gateway"): the labels by which objects find pods. They never change. */}}
{{- define "mooring.selector" -}}
app.kubernetes.io/name: {{ include "mooring.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The same: the labels of pods. No version is among them, so that an upgrade of the chart alone restarts nothing. */}}
{{- define "mooring.podLabels" -}}
{{- toYaml (merge (fromYaml (include "mooring.selector" .)) .root.Values.commonLabels) -}}
{{- end -}}

{{/* The same: all labels of an object. */}}
{{- define "mooring.labels" -}}
{{- $own := fromYaml (include "mooring.selector" .) -}}
{{- $own = merge $own (dict
    "app.kubernetes.io/version" .root.Chart.AppVersion
    "app.kubernetes.io/managed-by" .root.Release.Service
    "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_")) -}}
{{- toYaml (merge $own .root.Values.commonLabels) -}}
{{- end -}}

{{- define "mooring.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mooring.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "mooring.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "mooring.redisSecret" -}}
{{ .Values.redis.existingSecret | default (printf "%s-redis" (include "mooring.fullname" .)) }}
{{- end -}}

{{- define "mooring.fleetSecret" -}}
{{ .Values.fleetKeys.existingSecret | default (printf "%s-fleet" (include "mooring.fullname" .)) }}
{{- end -}}

{{/* "true" where session records are in a Redis. */}}
{{- define "mooring.hasRedis" -}}
{{- $url := dig "store" "url" "embedded" .Values.settings -}}
{{- if or .Values.redis.enabled .Values.redis.existingSecret (ne $url "embedded") -}}true{{- end -}}
{{- end -}}

{{/* "true" where a server runs code. */}}
{{- define "mooring.runsCode" -}}
{{- if dig "code" "enabled" true .Values.settings -}}
{{- range .Values.settings.servers -}}
{{- if eq (.kind | default "") "code" -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" where it runs in the tier that needs the seccomp profile. */}}
{{- define "mooring.isStrict" -}}
{{- if and (include "mooring.runsCode" .) (ne (dig "code" "isolation" "strict" .Values.settings) "degraded") -}}true{{- end -}}
{{- end -}}

{{/* "true" where the volume is one that outlives a pod. */}}
{{- define "mooring.hasVolume" -}}
{{- if or .Values.volume.enabled .Values.volume.existingClaim -}}true{{- end -}}
{{- end -}}

{{/* "true" where the next pod may start before the last one has ended. */}}
{{- define "mooring.canOverlap" -}}
{{- $isShared := or (not .Values.volume.enabled) .Values.volume.existingClaim (eq .Values.volume.accessMode "ReadWriteMany") -}}
{{- if and (include "mooring.hasRedis" .) $isShared -}}true{{- end -}}
{{- end -}}

{{/* "true" where the listener speaks TLS. */}}
{{- define "mooring.hasTls" -}}
{{- if dig "listen" "tls" "" .Values.settings -}}true{{- end -}}
{{- end -}}

{{/* (dict "path" "/readyz" "root" $): how the kubelet asks. It has no certificate where clients need one. */}}
{{- define "mooring.probe" -}}
{{- if dig "listen" "tls_client_ca_file" "" .root.Values.settings -}}
tcpSocket: { port: http }
{{- else -}}
httpGet: { path: {{ .path }}, port: http, scheme: {{ ternary "HTTPS" "HTTP" (ne (include "mooring.hasTls" .root) "") }} }
{{- end -}}
{{- end -}}

{{/* A value as TOML in one line. Numbers of values are floats, and no setting is one. */}}
{{- define "mooring.tomlValue" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha -}}
{{- if $index }},{{ end }} {{ toJson $key }} = {{ include "mooring.tomlValue" (get $ $key) }}
{{- end }} }
{{- else if kindIs "slice" . -}}
[{{- range $index, $item := . -}}
{{- if $index }}, {{ end }}{{ include "mooring.tomlValue" $item }}
{{- end -}}]
{{- else if kindIs "float64" . -}}
{{ int64 . }}
{{- else if kindIs "string" . -}}
{{ toJson . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* The settings as a TOML file, one table a section and a server. */}}
{{- define "mooring.toml" -}}
{{- $settings := . -}}
{{- range $section := keys (omit $settings "servers") | sortAlpha }}
[{{ $section }}]
{{- range $key := keys (get $settings $section) | sortAlpha }}
{{ $key }} = {{ include "mooring.tomlValue" (get (get $settings $section) $key) }}
{{- end }}
{{ end -}}
{{- range $server := $settings.servers }}
[[servers]]
{{- range $key := keys $server | sortAlpha }}
{{ $key }} = {{ include "mooring.tomlValue" (get $server $key) }}
{{- end }}
{{ end -}}
{{- end -}}

{{/* The settings that follow from the chart's own values. */}}
{{- define "mooring.ownSettings" -}}
{{- $any := ternary "[::]" "0.0.0.0" (eq .Values.ipFamily "IPv6") -}}
{{- $name := include "mooring.fullname" . -}}
{{- $hosts := dig "listen" "allowed_hosts" (list "localhost" "127.0.0.1" "[::1]") .Values.settings -}}
{{- if not (has "*" $hosts) -}}
{{- $hosts = concat $hosts (list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace)) -}}
{{- if and .Values.ingress.enabled .Values.ingress.host -}}
{{- $hosts = append $hosts .Values.ingress.host -}}
{{- end -}}
{{- end -}}
listen:
  address: {{ printf "%s:4444" $any | quote }}
  allowed_hosts: {{ toJson ($hosts | uniq) }}
  {{- if .Values.monitoring.enabled }}
  probe_detail: {{ dig "listen" "probe_detail" "everyone" .Values.settings }}
  {{- end }}
{{- if include "mooring.hasRedis" . }}
worker:
  fleet_keys_file: /etc/mooring/fleet/fleet.keys
  peer_listen: {{ printf "%s:4500" $any | quote }}
{{- else }}
store:
  path: /var/lib/mooring/state/sessions.db
{{- end }}
{{- if include "mooring.runsCode" . }}
code:
  base_dir: /var/lib/mooring/code
{{- end }}
{{- if .Values.apiKeys.existingSecret }}
auth:
  api_keys_file: /etc/mooring/api-keys/keys.json
{{- end }}
{{- end -}}

{{/* Seconds from the request to stop a gateway until it is killed: all that it may use, and five more. */}}
{{- define "mooring.gracePeriod" -}}
{{- $patience := .Values.settings.worker.stop_patience_ms | int64 -}}
{{- $leave := .Values.settings.worker.leave_ms | int64 -}}
{{- add .Values.preStopSeconds (div (add $patience $leave 999) 1000) 5 -}}
{{- end -}}

{{/* The security context of the gateways' containers. */}}
{{- define "mooring.containerSecurity" -}}
{{- $context := dict -}}
{{- if include "mooring.isStrict" . -}}
{{- $_ := set $context "seccompProfile" (dict "type" "Localhost" "localhostProfile" .Values.sandbox.seccompProfile) -}}
{{- $profile := .Values.sandbox.appArmorProfile -}}
{{- if eq $profile "unconfined" -}}
{{- $_ := set $context "appArmorProfile" (dict "type" "Unconfined") -}}
{{- else if $profile -}}
{{- $_ := set $context "appArmorProfile" (dict "type" "Localhost" "localhostProfile" $profile) -}}
{{- end -}}
{{- else -}}
{{- $_ := set $context "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- end -}}
{{- toYaml (merge (deepCopy .Values.containerSecurityContext) $context) -}}
{{- end -}}

{{/* Where pods of every kind may run. */}}
{{- define "mooring.scheduling" -}}
{{- with .Values.nodeSelector -}}
nodeSelector: {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with .Values.tolerations -}}
tolerations: {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with .Values.priorityClassName -}}
priorityClassName: {{ . }}
{{- end -}}
{{- end -}}

{{/* The users of the chart's Redis; the rights are those of docs/operating-redis.md. */}}
{{- define "mooring.users" -}}
user default on nopass resetkeys resetchannels nocommands +ping
user gateway on >{{ .gateway }} resetkeys ~{{ .prefix }}* nocommands +session.create +session.touch +session.end +session.kill +session.route +session.bind +session.confirm +session.rebind +session.unbind +session.enter +session.leave +session.rate +session.get +session.list +session.count +session.explain +session.reap +session.claim +session.forget +worker.beat +worker.gone +worker.list +worker.wait +get +set +del +mget +multi +exec +ping +command|info (~{{ .prefix }}session_history:* +rpush +ltrim +lrange +pexpire) (~{{ .prefix }}desired_state +hget +hgetall +hset +hdel +watch)
user operator on >{{ .operator }} resetkeys ~{{ .prefix }}* nocommands +session.list +session.count +session.get +session.explain +session.create +session.touch +session.bind +session.rebind +session.end +session.kill +session.stats +session.help +session.reindex +worker.list +info +ping +command|info (~{{ .prefix }}session_history:* +rpush +ltrim +lrange +pexpire)
{{ end -}}
