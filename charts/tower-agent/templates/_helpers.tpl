{{- define "tower-agent.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tower-agent.fullname" -}}
{{- $name := include "tower-agent.name" . }}
{{- $whole := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $whole .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "tower-agent.selector" -}}
app.kubernetes.io/name: {{ include "tower-agent.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tower-agent.labels" -}}
{{ include "tower-agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: agent
app.kubernetes.io/part-of: tower
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tower-agent.serviceAccount" -}}
{{- default (.Values.serviceAccount.create | ternary (include "tower-agent.fullname" .) "default") .Values.serviceAccount.name }}
{{- end }}

{{- define "tower-agent.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "tower-agent.tokenSecret" -}}
{{- default (printf "%s-join" (include "tower-agent.fullname" .)) .Values.joinToken.existingSecret }}
{{- end }}

{{- /* The ConfigMap of the owner's policy; empty without one. */}}
{{- define "tower-agent.policyMap" -}}
{{- $own := kindIs "invalid" .Values.policy.allow | ternary "" (printf "%s-policy" (include "tower-agent.fullname" .)) }}
{{- default $own .Values.policy.existingConfigMap }}
{{- end }}

{{- /* The variables that are the agent's options; empty ones are omitted. */}}
{{- define "tower-agent.options" -}}
{{- $targets := list }}
{{- range $name, $address := .Values.targets }}{{ $targets = append $targets (printf "%s=%s" $name $address) }}{{ end }}
TOWER_NAME: {{ .Values.name | quote }}
TOWER_PROXY_SERVER: {{ .Values.proxyServer | quote }}
TOWER_HOST_KEY: {{ join "," .Values.hostKeys | quote }}
TOWER_CA_HASH: {{ join "," .Values.caHashes | quote }}
TOWER_KEY_SECRET: {{ include "tower-agent.fullname" . }}-key
TOWER_HEALTH_ADDRESS: "[$(POD_IP)]:8081"
{{- if .Values.metrics.enabled }}
TOWER_METRICS_PORT: {{ .Values.metrics.port | quote }}
TOWER_METRICS_HOST: $(POD_IP)
{{- end }}
TOWER_ALLOW_SYSTEM_IDENTITY: {{ join "," .Values.allowSystemIdentities | quote }}
TOWER_POLICY_CONFIG_MAP: {{ include "tower-agent.policyMap" . | quote }}
TOWER_TARGET: {{ join "," $targets | quote }}
TOWER_KUBESPHERE_SERVICE: {{ .Values.kubesphereService | quote }}
TOWER_LOG_FORMAT: {{ .Values.log.format }}
TOWER_V: {{ .Values.log.level | quote }}
{{- end }}

{{- /* The constraints of the values, or one node for each pod if possible. */}}
{{- define "tower-agent.spread" -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "tower-agent.selector" . | fromYaml)) }}
{{- $nodes := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" }}
{{- $constraints := list }}
{{- range default (list $nodes) .Values.topologySpreadConstraints }}
{{- $constraints = append $constraints (merge (dict) . $selector) }}
{{- end }}
{{- toYaml $constraints | nindent 8 }}
{{- end }}

{{- /* Fails if values are missing or contradict each other; the schema checks each value alone. */}}
{{- define "tower-agent.check" -}}
{{- range $name := list "name" "proxyServer" "hostKeys" }}
{{- if not (get $.Values $name) }}
{{- fail (printf "%s is missing: take it from the line that \"tower join CLUSTER --format env\" prints" $name) }}
{{- end }}
{{- end }}
{{- if and .Values.joinToken.token .Values.joinToken.existingSecret }}
{{- fail "joinToken.token and joinToken.existingSecret are both set: omit one of them" }}
{{- end }}
{{- if and .Values.policy.existingConfigMap (not (kindIs "invalid" .Values.policy.allow)) }}
{{- fail "policy.allow and policy.existingConfigMap are both set: omit one of them" }}
{{- end }}
{{- if and .Values.impersonate.users (not .Values.impersonate.groups) }}
{{- fail "impersonate.users requires impersonate.groups: with the right to impersonate all groups, the restriction to some users has no effect" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) }}
{{- fail "metrics.serviceMonitor.enabled requires metrics.enabled: set both" }}
{{- end }}
{{- end }}
