{{- define "slurmbridge.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "slurmbridge.labels" -}}
app.kubernetes.io/name: slurmbridge
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "slurmbridge.selector" -}}
app.kubernetes.io/name: slurmbridge
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "slurmbridge.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "slurmbridge.runtimeImage" -}}
{{ .Values.jobs.runtimeImage | default (printf "%s-runtime:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion)) }}
{{- end -}}

{{- define "slurmbridge.jobsNamespace" -}}
{{ .Values.jobs.namespace | default .Release.Namespace }}
{{- end -}}

{{- define "slurmbridge.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "slurmbridge.name" .)) }}
{{- end -}}

{{- define "slurmbridge.host" -}}
{{ include "slurmbridge.name" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* slurmbridge.yaml: what the chart knows, then what the values add. */}}
{{- define "slurmbridge.config" -}}
{{- $name := include "slurmbridge.name" . -}}
{{- $made := dict
  "engine" "kubernetes"
  "state" "/var/lib/slurmbridge/state"
  "slurm_conf" "/etc/slurmbridge/conf/slurm.conf"
  "socket" "/run/slurmbridge/slurmbridge.sock"
  "watch_files" true
  "https" (dict "listen" ":6817" "certificate" "/etc/slurmbridge/tls/tls.crt" "key" "/etc/slurmbridge/tls/tls.key"
                "ca" "/etc/slurmbridge/tls/ca.crt"
                "url" (printf "https://%s:%d" (include "slurmbridge.host" .) (int .Values.service.port)))
  "probes" (dict "listen" ":8080")
  "identity" (dict "audiences" .Values.identity.audiences
                   "users" (concat .Values.identity.users (list (dict
                     "name" (printf "system:serviceaccount:%s:%s-test" .Release.Namespace $name) "user" "slurmtest")))
                   "relays" (list (dict "name" (printf "system:serviceaccount:%s:%s-login" .Release.Namespace $name) "root" true)))
  "kubernetes" (dict "namespace" (include "slurmbridge.jobsNamespace" .) "service" (printf "%s-jobs" $name)
                     "image" .Values.jobs.image "runtime_image" (include "slurmbridge.runtimeImage" .)
                     "runtime_delivery" .Values.jobs.runtimeDelivery "user_network_policies" .Values.networkPolicy.enabled
                     "defaults" (dict "pod" .Values.jobs.pod "container" .Values.jobs.container)) -}}
{{- if or .Values.accounts .Values.existingAccounts -}}
{{- $_ := set $made "accounts" "/etc/slurmbridge/accounts/accounts.cfg" -}}
{{- end -}}
{{- if .Values.ledger.postgresql.existingSecret -}}
{{- $_ := set $made "leader" (dict "lease" $name "duration_s" .Values.controller.leaseSeconds "service" $name "port" (int .Values.service.port)) -}}
{{- end -}}
{{- mustMergeOverwrite $made (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{- define "slurmbridge.passwd" -}}
root:x:0:0:root:/root:/bin/sh
slurm:x:64030:64030:slurmbridge:/var/lib/slurmbridge:/bin/false
slurmtest:x:64031:64031:helm test:/tmp:/bin/false
{{- range .Values.users }}
{{ .name }}:x:{{ int64 .uid }}:{{ int64 .gid }}::{{ .home | default (printf "/home/%s" .name) }}:{{ .shell | default "/bin/sh" }}
{{- end }}
{{- end -}}

{{- define "slurmbridge.group" -}}
root:x:0:
slurm:x:64030:
slurmtest:x:64031:
{{- range .Values.users }}
{{ .name }}:x:{{ int64 .gid }}:
{{- end }}
{{- range .Values.groups }}
{{ .name }}:x:{{ int64 .gid }}:{{ join "," .members }}
{{- end }}
{{- end -}}

{{- define "slurmbridge.identityMounts" -}}
- {name: users, mountPath: /etc/passwd, subPath: passwd, readOnly: true}
- {name: users, mountPath: /etc/group, subPath: group, readOnly: true}
{{- end -}}

{{- define "slurmbridge.rights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
